import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { ada, subjectsBus, subjectsDatabase, Registered } from "../../test/support/data-subjects.ts";
import { keyRingFile } from "../privacy/index.ts";

vi.setConfig({ testTimeout: 60_000 });

async function setup() {
  const folder = mkdtempSync(join(tmpdir(), "privacy-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const key = (seed: number): string =>
    Buffer.from(Array.from({ length: 32 }, (_, n) => (n * 13 + seed * 57) % 256)).toString("base64");
  const ringPath = file("ring", `a ${key(1)}\nindex ${key(9)}`);
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { privacy: { keys: keyRingFile(ringPath) } });
  await bus.transaction((tx) => tx.publish(Registered, ada));
  const env = { DATABASE_URL: database.url, SAGABOX_KEY_RING_FILE: ringPath, USER: "clerk" };
  const cli = (...args: string[]) => cliInProcess(args, env);
  return { database, bus, cli, file, key };
}

test("C6: erase says first what it would do, needs a reason, and takes the person from a file", async () => {
  const { cli, file, bus } = await setup();
  const subject = ["--subject-file", file("subject", "c-ada\n")];
  expect(await cli("erase", ...subject)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("--reason"),
  });
  expect(await cli("erase", "--reason", "r")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Pass the id of the data subject"),
  });
  expect(await cli("erase", "c-ada", ...subject, "--reason", "r")).toMatchObject({ code: 2 });
  for (const wrong of [" c-ada\n", "c-ada\nc-bob\n"]) {
    const refused = await cli("erase", "--subject-file", file("list", wrong), "--reason", "r");
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining("one id on one line") });
  }
  const dry = await cli("erase", ...subject, "--reason", "request 1", "--dry-run");
  expect(dry).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Dry run: nothing was erased\. 1 key\(s\) would be destroyed\./),
  });
  expect(await cli("erase", ...subject, "--reason", "request 1")).toMatchObject({
    code: 2,
    stdout: "",
    stderr: expect.stringMatching(/1 key\(s\) of the data subject are destroyed\. .* add --yes/),
  });
  expect((await bus.privacy.status()).destroyed).toBe(0);
  const done = await cli("erase", ...subject, "--reason", "request 1", "--yes");
  expect(done).toMatchObject({ code: 0, stderr: "" });
  expect(done.stdout).toContain("Erased: 1 key(s) destroyed");
  expect(done.stdout).not.toContain("c-ada");
  expect((await cli("erase", "c-ada", "--reason", "request 1", "--yes")).stdout).toContain("already erased");
});

test("C6: erase of an id that nobody has says so, and fails", async () => {
  const { cli } = await setup();
  const because = ["--reason", "request 1"];
  expect(await cli("erase", "c-adda", ...because)).toMatchObject({
    code: 1,
    stdout: expect.stringContaining("No data subject has this id"),
  });
  const unknown = await cli("erase", "c-adda", ...because, "--yes");
  expect(unknown.code).toBe(1);
  expect(unknown.stdout).toMatch(/^No data subject has this id: .*\nErasure log entry: \S+\n$/);
  expect(await cli("privacy", "export", "c-ada")).toMatchObject({ code: 2 });
});

test("C6: export, hold, rewrap, erasures, reapply and status", async () => {
  const { cli, file, key } = await setup();
  const exported = await cli("privacy", "export", "c-ada", "--reason", "request 1");
  expect(JSON.parse(exported.stdout.trim())).toMatchObject({ kind: "message", data: { email: ada.email } });
  const hold = ["privacy", "hold", "c-ada", "--reason", "case"];
  expect(await cli(...hold)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^Held: this data subject cannot/),
  });
  expect(JSON.parse((await cli(...hold, "--json")).stdout)).toEqual({ held: false });
  const refused = await cli("erase", "c-ada", "--reason", "r", "--yes");
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("PRIVACY_SUBJECT_HELD") });
  const release = ["privacy", "release", "c-ada", "--reason", "over"];
  expect(JSON.parse((await cli(...release, "--json")).stdout)).toEqual({ released: true });
  expect((await cli(...release)).stdout).toBe("Nothing to release: there is no hold.\n");
  file("ring", `b ${key(2)}\na ${key(1)}\nindex ${key(9)}`);
  expect(JSON.parse((await cli("privacy", "rewrap", "--json")).stdout)).toEqual({ rewrapped: 1, left: 0 });
  expect((await cli("privacy", "rewrap")).stdout).toContain("can be removed from the key ring");
  expect((await cli("privacy", "status")).stdout).toMatch(
    /^current key +b\ndata keys +wrapped: 1 by b; 0 destroyed$/m,
  );
  expect(JSON.parse((await cli("privacy", "status", "--json")).stdout)).toMatchObject({
    currentKey: "b",
    keys: { b: 1 },
  });
  await cli("erase", "c-ada", "--reason", "r", "--yes");
  const list = file("erasures", (await cli("privacy", "erasures")).stdout);
  expect(JSON.parse((await cli("privacy", "reapply", list, "--json")).stdout)).toEqual({
    erasures: 1,
    keysDestroyed: 0,
    refused: 0,
  });
  expect((await cli("privacy", "reapply", list)).stdout).toMatch(/^1 erasure\(s\) repeated, 0 restored key/);
  const forged = file(
    "forged",
    (await cli("privacy", "erasures")).stdout.replace(/"reason":"r"/, '"reason":"s"'),
  );
  expect(await cli("privacy", "reapply", forged)).toMatchObject({
    code: 3,
    stdout: expect.stringContaining("1 line(s) skipped"),
  });
  expect(await cli("privacy", "end-saga", "nobody", "--reason", "r")).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/^Nothing was ended/),
  });
  expect(await cli("privacy", "reapply", file("bad", "nonsense"))).toMatchObject({ code: 2 });
  expect(await cli("privacy", "exprt")).toMatchObject({ code: 2, stderr: expect.stringContaining("export") });
});

test("C6: without keys the commands say what is missing", async () => {
  const { database } = await setup();
  const result = await cliInProcess(["privacy", "status"], { DATABASE_URL: database.url });
  expect(result).toMatchObject({ code: 1, stderr: expect.stringContaining("SAGABOX_KEY_RING_FILE") });
});
