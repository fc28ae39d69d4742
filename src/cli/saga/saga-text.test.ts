import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import type { SagaDetail } from "../../admin/index.ts";
import { SUBJECT_ERASED } from "../../message/index.ts";
import { sagaText } from "./instances.ts";

const at = "2030-01-01T00:00:00.000Z";
const parked: Omit<SagaDetail, "state"> = {
  id: "s1",
  type: "trip",
  definitionVersion: 1,
  key: "t1",
  status: "failed",
  currentStep: "book.flight",
  waitsFor: "run: undo of book.flight",
  waitingSince: at,
  version: 4,
  lastError: "no seat known",
  retryCount: 0,
  traceId: "t",
  correlationId: "c",
  parent: null,
  dueAt: "2030-01-02T00:00:00.000Z",
  claimedBy: null,
  claimedUntil: null,
  createdAt: at,
  updatedAt: at,
  completedAt: null,
  input: { id: "t1" },
  direction: "backward",
  pivoted: false,
  cause: null,
  deadlineAt: null,
  steps: [
    {
      step: "book.flight",
      status: "compensating",
      outcome: "done",
      startedAt: at,
      endedAt: at,
      durationMs: 0,
      attempts: 1,
      nextAt: null,
      dueAt: null,
      error: null,
      result: null,
      undo: {
        status: "failed",
        startedAt: at,
        endedAt: at,
        durationMs: 0,
        attempts: 1,
        error: "no seat known",
      },
    },
  ],
  incident: {
    id: "1",
    sagaId: "s1",
    type: "trip",
    key: "t1",
    steps: ["book.flight"],
    error: "no seat known",
    deadLetters: [],
    openedAt: at,
    closedAt: null,
    resolution: null,
  },
  children: [],
  pendingInputs: 0,
};

test("a failed undo is told as such, with commands that name the step", () => {
  const text = sagaText(parked);
  expect(text).toContain(
    `An operator must decide since ${at}: the undo of book.flight failed for good: no seat known\n`,
  );
  expect(text).toContain(
    `  sagabox saga settle s1 --step book.flight --actor "$(whoami)" --reason 'done by hand' --yes `,
  );
  expect(text).toContain(
    `  sagabox saga skip s1 --step book.flight --actor "$(whoami)" --reason 'not needed' --yes `,
  );
});

test("the suggested commands can be pasted into a shell", () => {
  const commands = sagaText(parked)
    .split("\n")
    .filter((line) => line.startsWith("  sagabox "));
  for (const command of commands) {
    const printed = execFileSync("sh", ["-c", `sagabox() { printf '%s|' "$@"; }\n${command}`], {
      encoding: "utf8",
    });
    expect(printed).toMatch(/^saga\|(retry|settle|skip)\|s1\|.*--actor\|[^|]+\|--reason\|[^|]+\|(--yes\|)?$/);
  }
  expect(commands).toHaveLength(3);
});

test("a saga that waits for an operator shows no due time", () => {
  expect(sagaText(parked)).not.toContain("next due");
  expect(sagaText({ ...parked, status: "compensating" })).toMatch(/^next due +2030-01-02T/m);
});

test("a saga whose person was erased is not offered a retry that could not help", () => {
  const incident = parked.incident === null ? null : { ...parked.incident, error: SUBJECT_ERASED };
  const text = sagaText({ ...parked, incident });
  expect(text).toContain(`  sagabox privacy end-saga s1 --actor "$(whoami)" --reason 'data erased' `);
  expect(text).not.toContain("saga retry");
});
