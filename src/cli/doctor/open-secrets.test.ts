import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findOpenSecrets } from "../commands/doctor.ts";

function secretsIn(): string {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-secrets-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  return folder;
}

function file(folder: string, name: string, mode: number): string {
  const path = join(folder, name);
  writeFileSync(path, "secret");
  chmodSync(path, mode);
  return path;
}

test.runIf(process.platform !== "win32")(
  "G13: a secret that every user may read is found, through links too",
  () => {
    const folder = secretsIn();
    symlinkSync(file(folder, "url", 0o644), join(folder, "link"));
    const env = {
      DATABASE_URL_FILE: join(folder, "link"),
      SAGABOX_KEY_RING_FILE: file(folder, "ring", 0o440),
      SAGABOX_KAFKA_PASSWORD_FILE: file(folder, "password", 0o602),
      SAGABOX_NATS_PASSWORD_FILE: join(folder, "nothing"),
      SAGABOX_SCHEMA_FILE: file(folder, "no-secret", 0o644),
    };
    expect(findOpenSecrets(env)).toEqual({
      files: 4,
      open: ["DATABASE_URL_FILE", "SAGABOX_KAFKA_PASSWORD_FILE"],
    });
    expect(findOpenSecrets(env, "win32")).toEqual({ files: 4, open: [] });
  },
);

test.runIf(process.platform !== "win32")(
  "G13: a secret in a folder that others cannot enter is closed",
  () => {
    const folder = join(secretsIn(), "own");
    mkdirSync(folder);
    const env = { DATABASE_URL_FILE: file(folder, "url", 0o644) };
    chmodSync(folder, 0o700);
    expect(findOpenSecrets(env)).toEqual({ files: 1, open: [] });
  },
);

test("G13: without such variables there is nothing to look at", () => {
  expect(findOpenSecrets({ DATABASE_URL: "postgres://u@h/d" })).toEqual({ files: 0, open: [] });
});
