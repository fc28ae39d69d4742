import type { Capabilities } from "../transport/index.ts";
import type { ExerciseCase, ExerciseCases } from "./exercise-case.ts";
import { deliveryCases } from "./exercise-deliveries.ts";
import { flowCases } from "./exercise-flow.ts";
import { groupCases } from "./exercise-groups.ts";
import { publishingCases } from "./exercise-publishing.ts";
import { retryCases } from "./exercise-retries.ts";
import { ExerciseHarness, type Hook, type TransportUnderTest } from "./exercise-harness.ts";
import { streamCases } from "./exercise-streams.ts";
import { foreignMessageCases } from "./exercise-foreign-messages.ts";

export type { BrokerDeadLetter, Hook, TransportUnderTest } from "./exercise-harness.ts";

const exerciseCases: ExerciseCases = {
  ...publishingCases,
  ...deliveryCases,
  ...retryCases,
  ...groupCases,
  ...streamCases,
  ...flowCases,
  ...foreignMessageCases,
};

/** A larger claim is believed: what it takes to try it would be lost on everybody else. */
const MAX_TRIED_BYTES = 8 * 1_048_576;

const missingHookReasons: Readonly<Record<Hook, string>> = {
  abandon: "no process of it can die alone",
  cutConnections: "it has no connection that could break",
  putForeign: "nobody else can put anything there",
  deadLetters: "it has no dead letters of its own",
};

/** The little that is needed of a test runner: `{ test }` of vitest, `{ test: it }` of Mocha or node:test will do. */
export interface TestRunner {
  readonly test: (name: string, run: () => Promise<void>) => void;
}

export interface ExerciseOptions {
  /** What the transport claims; what it does not claim is not asked of it. */
  readonly capabilities: Capabilities;
  /** Which of the optional hooks its test comes with. Default none. */
  readonly offers?: readonly Hook[];
  /** Cases left out, each with the reason why. */
  readonly skip?: Readonly<Record<string, string>>;
}

export interface SkippedCase {
  readonly name: string;
  readonly reason: string;
}

/**
 * The conformance suite of transports: what sagabox relies on, case by case, each on a transport of its own. Returns
 * what was left out and why, so that a test can look at that too.
 */
export function exerciseTransport(
  runner: TestRunner,
  makeTransport: () => Promise<TransportUnderTest>,
  options: ExerciseOptions,
): readonly SkippedCase[] {
  assertKnown(Object.keys(options.skip ?? {}));
  const skipped: SkippedCase[] = [];
  for (const [name, exercise] of Object.entries(exerciseCases)) {
    const reason = options.skip?.[name] ?? findSkipReason(exercise, options);
    if (reason !== undefined) skipped.push({ name, reason });
    else runner.test(name, () => runCase(exercise, makeTransport));
  }
  return skipped;
}

async function runCase(
  exercise: ExerciseCase,
  makeTransport: () => Promise<TransportUnderTest>,
): Promise<void> {
  const under = await makeTransport();
  try {
    await under.transport.open();
    await exercise.run(new ExerciseHarness(under));
  } finally {
    await under.close();
  }
}

function findSkipReason(exercise: ExerciseCase, options: ExerciseOptions): string | undefined {
  const claimed = exercise.unless?.find((claim) => options.capabilities[claim] !== false);
  if (claimed !== undefined) return `it claims ${claimed}`;
  for (const need of exercise.needs ?? []) {
    const reason =
      need in missingHookReasons
        ? findMissingHook(need as Hook, options)
        : findMissingCapability(need as Claim, options);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

type Claim = keyof Capabilities;

function findMissingHook(hook: Hook, { offers }: ExerciseOptions): string | undefined {
  return offers?.includes(hook) === true ? undefined : missingHookReasons[hook];
}

function findMissingCapability(claim: Claim, { capabilities }: ExerciseOptions): string | undefined {
  if (capabilities[claim] === false) return `it does not claim ${claim}`;
  if (claim !== "maxBytes" || capabilities.maxBytes <= MAX_TRIED_BYTES) return undefined;
  return `a message of ${capabilities.maxBytes} bytes is too much to try`;
}

function assertKnown(names: readonly string[]): void {
  const unknown = names.find((name) => !(name in exerciseCases));
  if (unknown !== undefined) throw new Error(`There is no case "${unknown}" to leave out.`);
}
