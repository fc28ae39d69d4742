import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { event, permanent, retryAfter } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cliInProcess } from "../support/run-cli.ts";
import { until } from "../support/relays.ts";
import { rolesHarness } from "../support/roles-harness.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", {
  schema: z.object({ id: z.string(), total: z.number() }),
  key: ({ id }) => id,
});

test("G10: an operator does everything about dead letters, a viewer nothing, and no role is short of a right", async () => {
  const harness = await rolesHarness();
  const bus = await harness.bus(["worker"]);
  let broken = true;
  const seen: string[] = [];
  bus.on(Placed, { consumer: "billing" }, ({ data }) => {
    if (data.id === "late") throw retryAfter("1h", "not now");
    if (broken) throw permanent(`no price for ${data.total}`);
    seen.push(`${data.id} ${data.total}`);
  });
  await bus.run({ parts: ["relay", "consumers"] });
  const sent: string[] = [];
  for (const id of ["a", "b", "c", "d", "late"]) {
    sent.push((await bus.transaction((tx) => tx.publish(Placed, { id, total: 1 }))).id);
  }
  await until(async () => (await harness.count("dead_letter")) === 4);
  await until(async () => (await harness.count("queue", "last_error is not null")) === 1);
  const folder = await mkdtemp(join(tmpdir(), "sagabox-roles-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, "a.json"), '{"id":"a","total":2}');
  const as = async (role: "operator" | "viewer") => {
    const env = { DATABASE_URL: await harness.login(role), USER: "ann" };
    return (...args: string[]) => cliInProcess(["dlq", ...args], env);
  };
  const [operator, viewer] = [await as("operator"), await as("viewer")];
  expect(await viewer("groups")).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("STORAGE_PERMISSION_DENIED") as string,
  });
  const yes = ["--reason", "x", "--yes"];
  expect(await operator("groups", "--check")).toMatchObject({ code: 3, stderr: "" });
  expect(await operator("show", "1")).toMatchObject({ code: 0 });
  expect(await operator("discard", "--key", "d", ...yes)).toMatchObject({ code: 0 });
  expect(await operator("bury", sent[4] ?? "", ...yes)).toMatchObject({ code: 0 });
  broken = false;
  const letter = JSON.parse((await operator("list", "--key", "a", "--json")).stdout) as {
    deadLetters: { id: string }[];
  };
  const edit = ["edit", letter.deadLetters[0]?.id ?? "", "--data-file", join(folder, "a.json")];
  expect(await operator(...edit, ...yes)).toMatchObject({ code: 0, stderr: "" });
  expect(await operator("replay", "--died", "rejected", ...yes)).toMatchObject({ code: 0, stderr: "" });
  await until(async () => seen.length === 3);
  expect(seen.toSorted()).toEqual(["a 2", "b 1", "c 1"]);
  expect(await harness.count("audit_log", "actor = 'ann' and outcome = 'done'")).toBeGreaterThanOrEqual(6);
  expect(harness.troubles()).toEqual([]);
});
