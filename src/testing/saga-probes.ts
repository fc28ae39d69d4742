import { AssertionError } from "node:assert";
import type { HistoryLine, SagaDetail } from "../admin/index.ts";
import type { Bus } from "../app/index.ts";
import { isSagaboxError } from "../errors/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { hasEnded } from "../saga/index.ts";
import { pollFor, formatTime, type ProbeOptions } from "./eventually.ts";

/** How a saga ends. A `failed` saga has not ended, but it does not move until an operator decides. */
export type SagaEnd = "completed" | "compensated" | "failed";

const LAST_LINES = 10;

/**
 * Resolves with the saga when it has reached `end`, or any end if none is given. Rejects with an AssertionError when
 * the time is over, or at once when the saga can no longer reach `end`; the error describes its state and history.
 */
export async function sagaEnds(
  bus: Bus,
  sagaId: string,
  end?: SagaEnd,
  options: ProbeOptions = {},
): Promise<SagaDetail> {
  const isReached = ({ status }: SagaDetail): boolean =>
    end === undefined ? hasEnded(status) || status === "failed" : status === end;
  // A compensated saga stays compensated. A completed one stays completed unless an operator's request to compensate is
  // pending, or it has a parent, which can compensate it at any time.
  const isUnreachable = ({ status, pendingInputs, parent }: SagaDetail): boolean =>
    status === "compensated" || (status === "completed" && pendingInputs === 0 && parent === null);
  return probeSaga(bus, sagaId, options, {
    wanted: end === undefined ? "to end" : `to be ${end}`,
    isIt: isReached,
    neverWill: isUnreachable,
  });
}

/**
 * Resolves with the saga when this step is in progress: "pay", "prepare.pay" in a group, or "undo of pay". Rejects with
 * an AssertionError when the time is over, or at once when the saga has ended.
 */
export async function sagaWaitsFor(
  bus: Bus,
  sagaId: string,
  step: string,
  options: ProbeOptions = {},
): Promise<SagaDetail> {
  return probeSaga(bus, sagaId, options, {
    wanted: `to wait for "${step}"`,
    isIt: ({ steps }) => steps.some((one) => runningNames(one).includes(step)),
    neverWill: ({ status }) => hasEnded(status),
  });
}

/** Returns the names that `sagaWaitsFor` accepts for a step. The round ("@2") may be left out. */
function runningNames({ step, status, undo }: SagaDetail["steps"][number]): string[] {
  const names = [step, step.replace(/@\d+$/, "")];
  if (status === "in_progress") return names;
  return undo?.status === "in_progress" ? names.map((name) => `undo of ${name}`) : [];
}

interface Probe {
  readonly wanted: string;
  readonly isIt: (saga: SagaDetail) => boolean;
  readonly neverWill: (saga: SagaDetail) => boolean;
}

async function probeSaga(
  bus: Bus,
  sagaId: string,
  options: ProbeOptions,
  { wanted, isIt, neverWill }: Probe,
): Promise<SagaDetail> {
  rejectUnknownKeys("probe of a saga", options, ["within"]);
  const { within = "10s" } = options;
  let last: SagaDetail | undefined;
  const found = await pollFor(async () => {
    last = await findSaga(bus, sagaId);
    return last !== undefined && (isIt(last) || neverWill(last)) ? last : undefined;
  }, within);
  if ("value" in found && isIt(found.value)) return found.value;
  const time = "value" in found ? "" : ` within ${formatTime(within)}`;
  throw new AssertionError({
    message: [`Saga ${sagaId} was expected ${wanted}${time}.`, ...(await describeSaga(bus, last))].join("\n"),
    actual: last?.status,
    expected: wanted,
    operator: "probe",
    ...("error" in found && found.error !== undefined ? { cause: found.error } : {}),
    stackStartFn: probeSaga,
  });
}

async function findSaga(bus: Bus, sagaId: string): Promise<SagaDetail | undefined> {
  try {
    return await bus.sagas.show(sagaId);
  } catch (error) {
    if (isSagaboxError(error, "SAGA_NOT_FOUND")) return undefined;
    throw error;
  }
}

async function describeSaga(bus: Bus, saga: SagaDetail | undefined): Promise<string[]> {
  if (saga === undefined) return ["There is no such saga, or the database could not be read."];
  const { id, type, definitionVersion, key, status, waitsFor, dueAt, lastError, incident } = saga;
  const { waitingSince, cause } = saga;
  const lines = await bus.sagas.history(id, { limit: 10_000 }).catch(() => []);
  return [
    `It is a "${type}" (version ${definitionVersion}) with the key "${key}", and is ${status}.`,
    ...(waitsFor === null ? [] : [`It waits for ${waitsFor}, since ${waitingSince}.`]),
    ...(dueAt === null ? [] : [`It is due at ${dueAt}, even if no input arrives.`]),
    ...(cause === null ? [] : [`It started to compensate: ${cause}.`]),
    ...(lastError === null ? [] : [`Its last error: ${lastError}`]),
    ...(incident === null ? [] : [`An operator has to decide about ${incident.steps.join(", ")}.`]),
    "The last lines of its history:",
    ...lines.slice(-LAST_LINES).map((line) => `  ${formatHistoryLine(line)}`),
  ];
}

function formatHistoryLine({ at, version, event, step, from, to, note, cause }: HistoryLine): string {
  const change = from === null && to === null ? null : `${from ?? ""} → ${to ?? ""}`.trim();
  return [at, `v${version}`, event, step, change, note, `(${cause})`]
    .filter((part) => part !== null)
    .join(" ");
}
