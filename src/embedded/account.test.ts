import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { canReach, findServerAccount } from "./account.ts";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "sagabox-account-"));
  chmodSync(path, 0o755);
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

function passwd(content: string): string {
  const path = join(folder(), "passwd");
  writeFileSync(path, content);
  vi.spyOn(process, "getuid").mockReturnValue(0);
  onTestFinished(() => void vi.restoreAllMocks());
  return path;
}

test("a normal user runs the server as itself", () => {
  vi.spyOn(process, "getuid").mockReturnValue(1000);
  onTestFinished(() => void vi.restoreAllMocks());
  expect(findServerAccount("/nowhere")).toBeUndefined();
});

test("root runs the server as postgres, or as nobody when there is no postgres", () => {
  const both = "root:x:0:0::/:\nnobody:x:65534:65533::/:\npostgres:x:101:104::/:\n";
  expect(findServerAccount("/nowhere", passwd(both))).toEqual({ uid: 101, gid: 104 });
  expect(findServerAccount("/nowhere", passwd("nobody:x:65534:65533::/:\n"))).toEqual({
    uid: 65534,
    gid: 65533,
  });
});

test("root without any such account is told what to do", () => {
  expect(() => findServerAccount("/nowhere", passwd("root:x:0:0::/:\n"))).toThrow("DATABASE_URL");
});

test("a folder is out of reach when any folder above it is closed to the account", () => {
  const home = folder();
  mkdirSync(join(home, "private"));
  chmodSync(join(home, "private"), 0o700);
  const stranger = { uid: 4_000_001, gid: 4_000_001 };
  expect(canReach(join(home, "data"), stranger)).toBe(true);
  expect(canReach(join(home, "private", "data"), stranger)).toBe(false);
  expect(canReach(join(home, "private", "not", "yet", "there"), stranger)).toBe(false);
  expect(canReach(join(home, "private", "data"), undefined)).toBe(true);
});
