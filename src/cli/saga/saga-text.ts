import { stepFailureText, type SagaDetail, type StepDetail } from "../../admin/index.ts";
import { SUBJECT_ERASED } from "../../message/index.ts";
import { durationText, printable } from "../../telemetry/index.ts";
import { jsonText, table } from "../print.ts";

/** One instance for people. Everything in it that others chose is made harmless. */
export function sagaText(saga: Omit<SagaDetail, "state">): string {
  const facts: readonly (readonly [string, string | null])[] = [
    ["saga", `${saga.type} version ${saga.definitionVersion}`],
    ["key", saga.correlationId],
    ["status", `${saga.status}${saga.pivoted ? ", past its pivot" : ""}`],
    ["turned back", saga.cause],
    ["waits for", saga.waitsFor === null ? null : `${saga.waitsFor} since ${saga.waitingSince ?? "?"}`],
    // Parked, it goes on when a person says so, whatever the clock says.
    ["next due", saga.status === "failed" ? null : saga.dueAt],
    ["deadline", saga.deadlineAt],
    ["worked on by", saga.claimedBy === null ? null : `${saga.claimedBy} until ${saga.claimedUntil ?? "?"}`],
    ["waiting mail", saga.waitingMail === 0 ? null : String(saga.waitingMail)],
    ["started", saga.startedAt],
    ["changed", saga.updatedAt],
    ["ended", saga.endedAt],
    ["trace", saga.traceId],
    ["correlation id", saga.messageCorrelationId],
    ["parent", saga.parent === null ? null : `${saga.parent.id}, step ${saga.parent.step}`],
    ["input", jsonText(saga.input)],
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
    ...incidentLines(saga),
    ...childLines(saga),
  ].join("\n");
}

function stepTable(steps: readonly StepDetail[]): string {
  const rows = steps.flatMap((step) => {
    const own = [
      step.step,
      step.status,
      step.startedAt,
      tookText(step.durationMs),
      step.attempts,
      step.error,
    ];
    const { undo } = step;
    if (undo === null) return [own];
    return [
      own,
      ["  undo", undo.status, undo.startedAt, tookText(undo.durationMs), undo.attempts, undo.error],
    ];
  });
  return table(["step", "status", "started at", "took", "attempts", "error"], rows);
}

function tookText(ms: number | null): string | null {
  return ms === null ? null : durationText(ms);
}

function incidentLines({ id, incident: open, steps }: Omit<SagaDetail, "state">): string[] {
  if (open === null) return [];
  if (open.error === SUBJECT_ERASED) {
    return [
      "",
      `A person has to decide since ${open.openedAt}: ${SUBJECT_ERASED}, and nothing can be undone without its state`,
      `  sagabox privacy end-saga ${id} --reason …     to close it as it is`,
    ].map(printable);
  }
  const failures = open.steps.map((place) =>
    stepFailureText(place, steps.find(({ step }) => step === place) ?? { error: open.error }),
  );
  const ways = open.steps.flatMap((place) => [
    `  sagabox saga settle ${id} --step ${place} --reason …     when it was done by hand`,
    `  sagabox saga skip ${id} --step ${place} --reason …     to go on without it`,
  ]);
  return [
    "",
    `A person has to decide since ${open.openedAt}: ${failures.join("; ")}`,
    `  sagabox saga retry ${id} --reason …     once the cause is repaired`,
    ...ways,
  ].map(printable);
}

function childLines({ children: all }: Omit<SagaDetail, "state">): string[] {
  if (all.length === 0) return [];
  const rows = all.map(({ id, type, status, parent }) => [id, type, status, parent?.step ?? null]);
  return ["", table(["child", "type", "status", "step"], rows)];
}
