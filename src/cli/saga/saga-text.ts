import type { SagaDetail, StepDetail } from "../../admin/index.ts";
import { durationText, printable } from "../../telemetry/index.ts";
import { json, table } from "../print.ts";

/** One instance for people. Everything in it that others chose is made harmless. */
export function sagaText(saga: Omit<SagaDetail, "state">): string {
  const facts: readonly (readonly [string, string | null])[] = [
    ["saga", `${saga.type} version ${saga.definitionVersion}`],
    ["key", saga.correlationId],
    ["status", `${saga.status}${saga.pivoted ? ", past its pivot" : ""}`],
    ["turned back", saga.cause],
    ["waits for", saga.waitsFor === null ? null : `${saga.waitsFor} since ${saga.waitingSince ?? "?"}`],
    ["next due", saga.dueAt],
    ["deadline", saga.deadlineAt],
    ["worked on by", saga.claimedBy === null ? null : `${saga.claimedBy} until ${saga.claimedUntil ?? "?"}`],
    ["waiting mail", saga.waitingMail === 0 ? null : String(saga.waitingMail)],
    ["started", saga.startedAt],
    ["changed", saga.updatedAt],
    ["ended", saga.endedAt],
    ["trace", saga.traceId],
    ["correlation id", saga.messageCorrelationId],
    ["parent", saga.parent === null ? null : `${saga.parent.id}, step ${saga.parent.step}`],
    ["input", json(saga.input)],
  ];
  const width = Math.max(...facts.map(([name]) => name.length));
  const lines = facts.flatMap(([name, value]) =>
    value === null ? [] : [`${name.padEnd(width)}  ${printable(value)}`],
  );
  return [
    `${printable(saga.id)}\n`,
    ...lines,
    "",
    stepTable(saga.steps),
    ...incident(saga),
    ...children(saga),
  ].join("\n");
}

function stepTable(steps: readonly StepDetail[]): string {
  const rows = steps.flatMap((step) => {
    const own = [step.step, step.status, step.startedAt, took(step.durationMs), step.attempts, step.error];
    const { undo } = step;
    if (undo === null) return [own];
    return [own, ["  undo", undo.status, undo.startedAt, took(undo.durationMs), undo.attempts, undo.error]];
  });
  return table(["step", "status", "started at", "took", "attempts", "error"], rows);
}

function took(ms: number | null): string | null {
  return ms === null ? null : durationText(ms);
}

function incident({ id, incident: open }: Omit<SagaDetail, "state">): string[] {
  if (open === null) return [];
  return [
    "",
    printable(`A person has to decide since ${open.openedAt}: ${open.steps.join(", ")}: ${open.error}`),
    printable(`  sagabox saga retry ${id} --reason …     once the cause is repaired`),
    printable(`  sagabox saga settle ${id} --step … --reason …     when it was done by hand`),
    printable(`  sagabox saga skip ${id} --step … --reason …     to go on without it`),
  ];
}

function children({ children: all }: Omit<SagaDetail, "state">): string[] {
  if (all.length === 0) return [];
  const rows = all.map(({ id, type, status, parent }) => [id, type, status, parent?.step ?? null]);
  return ["", table(["child", "type", "status", "step"], rows)];
}
