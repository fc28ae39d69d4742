import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createBus } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { createDatabase, cutConnections } from "../../support/database.ts";
import { ada, subjectsBus, subjectsDatabase, Registered } from "../../support/data-subjects.ts";
import { Runbook } from "../../support/runbook.ts";
import { keyRingFile } from "../../../src/privacy/index.ts";

vi.setConfig({ testTimeout: 60_000 });

async function people() {
  const folder = mkdtempSync(join(tmpdir(), "runbook-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const key = (seed: number): string =>
    Buffer.from(Array.from({ length: 32 }, (_, n) => (n * 13 + seed * 57) % 256)).toString("base64");
  const ring = file("ring", `a ${key(1)}\nindex ${key(9)}`);
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, {
    privacy: { keys: keyRingFile(ring) },
    outbox: { optimistic: false },
  });
  const { id } = await bus.transaction((tx) => tx.publish(Registered, ada));
  return { ...database, id, bus, file, ring, env: { SAGABOX_KEY_RING_FILE: ring } };
}

test("G7, C6, erasure request: a copy is given out, a held person is safe, then the person is erased", async () => {
  const { url, file, env, bus } = await people();
  const book = new Runbook("erasure-request", url, env);
  const fill = { "subject-file": file("subject", "c-ada\n"), number: "4711" };
  await book.done("First look");
  expect(await book.done("Give out a copy", fill)).toContain(ada.email);
  await book.done("Hold", fill);
  expect((await book.follow("Fix", fill)).map(({ code }) => code)).toContain(1);
  expect((await bus.privacy.status()).destroyed).toBe(0);
  await book.done("Release", fill);
  expect(await book.done("Fix", fill)).toMatch(/would be destroyed[^]*Erased: 1 key\(s\) destroyed/);
  expect((await bus.privacy.status()).destroyed).toBe(1);
  expect(await book.done("Afterwards", fill)).toContain("4711");
  expect(JSON.stringify(await book.follow("Give out a copy", fill))).not.toContain(ada.email);
  expect(book.forgotten).toEqual([]);
});

test("G7, G14, restore from backup: a person erased since is erased again, and what waited goes out", async () => {
  const { url, pool, name, id, bus, file, ring, env } = await people();
  // The backup is a copy of the database as it is now, with a message that waits.
  await bus.stop();
  await cutConnections({ name });
  const restored = await createDatabase({ template: name });
  onTestFinished(() => restored.drop());

  const before = new Runbook("erasure-request", url, env);
  await before.done("Fix", { "subject-file": file("subject", "c-ada"), number: "12" });
  // Then a table is emptied by mistake.
  await pool.query("delete from sagabox.outbox");
  const lost = new Runbook("restore-from-backup", url, env);
  const [verify, audit, list] = await lost.follow("First look");
  expect(verify).toMatchObject({ code: 3, stdout: expect.stringContaining(id) });
  expect([audit?.code, list?.code]).toEqual([0, 0]);
  const erasures = (list?.stdout ?? "").trim();
  expect(erasures.split("\n")).toHaveLength(1);

  const book = new Runbook("restore-from-backup", restored.url, env);
  await book.done("First look");
  expect(await book.done("Restore")).toContain("1 waiting");
  const seen: string[] = [];
  const privacy = { keys: keyRingFile(ring) };
  const revived = createBus({ service: "people", database: restored.url, log: false, lease: "1s", privacy });
  onTestFinished(async () => void (await revived.stop()));
  expect((await revived.privacy.status()).destroyed).toBe(0);
  const window = {
    "erasures-file": file("erasures.ndjson", erasures),
    from: new Date(Date.now() - 60_000).toISOString(),
    to: new Date(Date.now() + 60_000).toISOString(),
  };
  await book.done("After the restore", window);
  expect((await revived.privacy.status()).destroyed).toBe(1);
  revived.on(
    Registered,
    { consumer: "mail", from: "beginning" },
    ({ data }) => void seen.push(JSON.stringify(data)),
  );
  await revived.run();
  await expect.poll(() => book.done("Afterwards").catch(String), { timeout: 20_000 }).toContain("healthy");
  expect(seen.join("\n")).not.toContain(ada.email);
  expect(book.forgotten).toEqual([]);
});
