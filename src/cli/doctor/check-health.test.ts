import { expect, test } from "vitest";
import { healthUrl } from "../commands/doctor.ts";

test.each([
  ["127.0.0.1", "http://127.0.0.1:8000/health/ready"],
  ["worker-0.internal", "http://worker-0.internal:8000/health/ready"],
  ["0.0.0.0", "http://127.0.0.1:8000/health/ready"],
  ["::", "http://[::1]:8000/health/ready"],
  ["::1", "http://[::1]:8000/health/ready"],
  ["fd00::7", "http://[fd00::7]:8000/health/ready"],
])("G13: the doctor asks a worker that listens on %s at an address that is one", (host, url) => {
  expect(healthUrl(host, 8_000)).toBe(url);
  expect(new URL(url).port).toBe("8000");
});
