import { mkdir, mkdtemp, open, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { newKey, pieces, read } from "../../test/support/stores/exercise-store.ts";
import { fileStore, fileStoreWith } from "./file-store.ts";

const never = new AbortController().signal;
const invalid = expect.objectContaining({ code: "CLAIM_INVALID" });

async function temporaryFolders(): Promise<{ folder: string; outside: string }> {
  const base = await mkdtemp(join(tmpdir(), "sagabox-files-"));
  onTestFinished(() => rm(base, { recursive: true, force: true }));
  const [folder, outside] = [join(base, "store"), join(base, "outside")];
  await mkdir(folder);
  await mkdir(outside);
  return { folder, outside };
}

async function everything(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => !entry.isDirectory()).map(({ name }) => name);
}

test.each([
  "../secret",
  "/etc/passwd",
  "a/b/c",
  "..%2fsecret",
  "x\0y",
  "",
  `${"0".repeat(12)}/2026-11-16/../../x`,
])("the key %j is rejected", async (key) => {
  const { folder } = await temporaryFolders();
  const store = fileStore({ folder });
  await expect(async () => store.put(key, pieces(Buffer.from("x")), never)).rejects.toEqual(invalid);
  await expect(async () => store.get(key, never)).rejects.toEqual(invalid);
  await expect(async () => store.delete([key], never)).rejects.toEqual(invalid);
  expect(await everything(folder)).toEqual([]);
});

test("a symbolic link instead of a file is not followed", async () => {
  const { folder, outside } = await temporaryFolders();
  const key = newKey();
  await writeFile(join(outside, "secret"), "secret");
  await mkdir(dirname(join(folder, key)), { recursive: true });
  await symlink(join(outside, "secret"), join(folder, key));
  const store = fileStore({ folder });
  await expect(async () => read(store, key)).rejects.toEqual(invalid);
  await store.put(key, pieces(Buffer.from("mine")), never); // replaces the link, not its target
  expect(await readFile(join(outside, "secret"), "utf8")).toBe("secret");
  expect((await read(store, key)).toString()).toBe("mine");
});

test("a folder replaced by a link is not used to read, write, list or delete", async () => {
  const { folder, outside } = await temporaryFolders();
  const key = newKey();
  const [home = "", day = "", name = ""] = key.split("/");
  await mkdir(join(outside, day), { recursive: true });
  await writeFile(join(outside, day, name), "secret");
  await symlink(outside, join(folder, home));
  const store = fileStore({ folder });
  await expect(async () => read(store, key)).rejects.toEqual(invalid);
  await expect(store.put(newKey(day, home), pieces(Buffer.from("x")), never)).rejects.toEqual(invalid);
  await expect(store.put(newKey("2020-01-01", home), pieces(Buffer.from("x")), never)).rejects.toEqual(
    invalid,
  );
  await expect(store.delete([key], never)).rejects.toEqual(invalid);
  await expect(store.list(`${home}/${day}/`, undefined, never)).rejects.toEqual(invalid);
  expect(await everything(outside)).toEqual([name]);
  expect(await readdir(outside)).toEqual([day]);
});

test("the configured folder may be a symbolic link", async () => {
  const { folder, outside } = await temporaryFolders();
  await symlink(outside, join(folder, "link"));
  const store = fileStore({ folder: join(folder, "link") });
  const key = newKey();
  await store.put(key, pieces(Buffer.from("x")), never);
  expect((await read(store, key)).toString()).toBe("x");
});

test("a full disk is reported as CLAIM_STORE_FULL, and no partial file is left", async () => {
  const { folder } = await temporaryFolders();
  const full: typeof open = async (path, flags, mode) => {
    const file = await open(path, flags, mode);
    let written = 0;
    const write = file.write.bind(file) as (
      bytes: Uint8Array,
      at: number,
    ) => Promise<{ bytesWritten: number }>;
    return Object.assign(file, {
      write: async (bytes: Uint8Array, at: number) => {
        if (written > 300_000) throw Object.assign(new Error("ENOSPC: no space left"), { code: "ENOSPC" });
        const done = await write(bytes, at);
        written += done.bytesWritten;
        return done;
      },
    }) as typeof file;
  };
  const store = fileStoreWith({ folder }, full);
  const key = newKey();
  await expect(store.put(key, pieces(Buffer.alloc(2_000_000)), never)).rejects.toMatchObject({
    code: "CLAIM_STORE_FULL",
  });
  expect(await everything(folder)).toEqual([]);
  await expect(async () => read(store, key)).rejects.toMatchObject({ code: "CLAIM_MISSING" });
});

test("a half-written file is listed and can be deleted, but not read", async () => {
  const { folder } = await temporaryFolders();
  const key = newKey();
  await mkdir(dirname(join(folder, key)), { recursive: true });
  await writeFile(join(folder, `${key}.part`), "half");
  const store = fileStore({ folder });
  const prefix = key.slice(0, 24);
  expect((await store.list(prefix, undefined, never)).blobs).toMatchObject([{ key }]);
  await expect(async () => read(store, key)).rejects.toMatchObject({ code: "CLAIM_MISSING" });
  await store.delete([key], never);
  expect(await everything(folder)).toEqual([]);
});

test("a file that is not a blob is neither listed nor deleted", async () => {
  const { folder } = await temporaryFolders();
  const key = newKey();
  await mkdir(dirname(join(folder, key)), { recursive: true });
  await writeFile(join(dirname(join(folder, key)), "README"), "mine");
  const store = fileStore({ folder });
  expect((await store.list(key.slice(0, 24), undefined, never)).blobs).toEqual([]);
});

test("an aborted put leaves no file", async () => {
  const { folder } = await temporaryFolders();
  const gone = new AbortController();
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.alloc(300_000);
    gone.abort(new Error("aborted by the test"));
    yield Buffer.alloc(300_000);
  };
  await expect(fileStore({ folder }).put(newKey(), source(), gone.signal)).rejects.toThrow(
    "aborted by the test",
  );
  expect(await everything(folder)).toEqual([]);
});

test("a relative folder is rejected", () => {
  expect(() => fileStore({ folder: "payloads" })).toThrow(/absolute path/);
});
