import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { cliInProcess } from "../../test/support/run-cli.ts";
import { temporaryDatabase } from "../../test/support/database.ts";

test("G13: doctor prints problems with what mends them and exits with 3; --all and --json tell the rest", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  await pool.query("drop index sagabox.outbox_stream");
  const env = { DATABASE_URL: url };
  const plain = await cliInProcess(["doctor"], env);
  expect(plain).toMatchObject({ code: 3, stderr: "" });
  expect(plain.stdout).toContain("✗ schema: index outbox_stream is missing");
  expect(plain.stdout).toContain("→ CREATE INDEX CONCURRENTLY outbox_stream ON sagabox.outbox");
  expect(plain.stdout).not.toContain("✓");
  expect(plain.stdout).not.toContain("least privilege");
  expect((await cliInProcess(["doctor", "--all"], env)).stdout).toContain("✓ server version: PostgreSQL");
  const server = createServer((_, response) => response.end("ready")).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const port = String((server.address() as AddressInfo).port);
  const asked = await cliInProcess(["doctor", "--production", "--json", "--pool", "5"], {
    ...env,
    SAGABOX_PORT: port,
  });
  const report = JSON.parse(asked.stdout) as { findings: { check: string; severity: string }[] };
  expect(report).toMatchObject({ healthy: false });
  expect(report.findings.find(({ check }) => check === "health")).toMatchObject({ severity: "fine" });
  expect(report.findings.find(({ check }) => check === "least privilege")?.severity).toBe("problem");
});

test("G13: no text of a saga begins a line of its own", async () => {
  const { url, pool } = await temporaryDatabase({ migrated: true });
  await pool.query(
    `insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
       traceparent, message_correlation_id, last_error)
     values ('s-1', 't', 1, 'k', 'failed', '{}', '{"records":{}}', 't', 'p', 'c', e'no carrier\\n0 problem(s)')`,
  );
  const { stdout } = await cliInProcess(["doctor"], { DATABASE_URL: url });
  expect(stdout).toContain("no carrier");
  expect(stdout).not.toMatch(/^0 problem/m);
});

test.runIf(process.platform !== "win32")(
  "G13: a password in a file that everybody reads is told",
  async () => {
    const { url } = await temporaryDatabase({ migrated: true });
    const folder = mkdtempSync(join(tmpdir(), "sagabox-doctor-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, "url");
    writeFileSync(file, url);
    chmodSync(folder, 0o755);
    const said = async (mode: number): Promise<string> => {
      chmodSync(file, mode);
      return (await cliInProcess(["doctor", "--production", "--all"], { DATABASE_URL_FILE: file })).stdout;
    };
    const open = await said(0o644);
    expect(open).toContain(
      "! secrets: every user of this machine can read or change the file of DATABASE_URL_FILE",
    );
    expect(open).toContain('→ chmod o= "$DATABASE_URL_FILE"');
    expect(await said(0o640)).toContain("✓ secrets: 1 file(s) with secrets, closed to other users");
  },
);

test("G13: doctor names pending migrations in a database without them, and refuses what it does not understand", async () => {
  const { url } = await temporaryDatabase();
  const { code, stdout } = await cliInProcess(["doctor"], { DATABASE_URL: url });
  expect([code, stdout]).toEqual([3, expect.stringContaining("sagabox migrate up")]);
  expect(await cliInProcess(["doctor", "--pool", "many"], {})).toMatchObject({ code: 2 });
  expect((await cliInProcess(["doctor", "--help"], {})).stdout).toContain(
    "sagabox doctor --production --json",
  );
});
