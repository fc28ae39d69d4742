import { ageText, countText, type Overview } from "../../admin/index.ts";
import { printable } from "../../telemetry/index.ts";
import { table } from "../print.ts";

/** The whole on one screen, what is wrong first. */
export function statusText(seen: Overview): string {
  return [
    ...verdictLines(seen),
    "",
    ...factLines(seen).map(([name, text]) => `${name.padEnd(12)}  ${printable(text)}`),
    ...consumerTable(seen),
    ...workerTable(seen),
  ].join("\n");
}

function verdictLines({ healthy, problems }: Overview): string[] {
  if (healthy) return ["healthy"];
  return [
    `${problems.length} problem(s)`,
    ...problems.map(({ what, command }) => printable(`  ${what} → ${command}`)),
  ];
}

function factLines({ at, schema, outbox, deadLetters, lanes, sagas }: Overview): [string, string][] {
  const oldest =
    outbox.oldestDueSeconds === null ? "" : `, the oldest due for ${ageText(outbox.oldestDueSeconds)}`;
  return [
    ["at", at],
    ["outbox", `${countText(outbox.waiting)} waiting${oldest}, ${outbox.failed} of them failed before`],
    ["scheduled", countText(outbox.scheduled)],
    ["lanes", `${lanes.total - lanes.unowned} of ${lanes.total} owned by running workers`],
    ["dead letters", `${countText(deadLetters)} open, ${outbox.heldKeys} key(s) held by them`],
    ["sagas", `${sagas.running} running, ${sagas.compensating} compensating, ${sagas.failed} failed`],
    ["schema", `${schema.name}, migration ${schema.version} (${schema.migration})`],
  ];
}

function consumerTable({ consumers }: Overview): string[] {
  if (consumers.length === 0) return [];
  const rows = consumers.map((one) => [
    one.name,
    one.topics,
    countText(one.waiting),
    one.failed,
    one.oldestDueSeconds === null ? null : ageText(one.oldestDueSeconds),
    one.ownedLanes,
  ]);
  return ["", table(["consumer", "topics", "waiting", "failed", "oldest due", "lanes owned"], rows)];
}

function workerTable({ workers }: Overview): string[] {
  if (workers.length === 0) return ["", "No worker is known."];
  const rows = workers.map(({ worker, live, since, goneSeconds, relayLanes }) => [
    worker,
    live ? "running" : `gone for ${ageText(goneSeconds ?? 0)}`,
    relayLanes,
    since,
  ]);
  return ["", table(["worker", "state", "relay lanes", "since"], rows)];
}
