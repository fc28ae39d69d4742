import { expect, test } from "vitest";
import { isLoopback } from "./loopback.ts";

test.each(["localhost", "127.0.0.1", "127.1.2.3", "127.255.255.255", "::1", "[::1]"])(
  "%s is loopback",
  (host) => {
    expect(isLoopback(host)).toBe(true);
  },
);

test.each([
  "",
  "localhost.",
  "localhost.example.com",
  "evil-localhost",
  "LOCALHOST",
  "127.0.0.1.example.com",
  "127.0.0.256",
  "127.999.0.1",
  "127.1",
  "127.0.0.1:80",
  " 127.0.0.1",
  "127.0.0.1\n",
  "0.0.0.0",
  "10.0.0.1",
  "128.0.0.1",
  "2130706433",
  "0x7f000001",
  "::",
  "::2",
  "::ffff:127.0.0.1",
  "[::1].example.com",
])("%j is not loopback", (host) => {
  expect(isLoopback(host)).toBe(false);
});
