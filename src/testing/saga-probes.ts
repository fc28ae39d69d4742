import { AssertionError } from "node:assert";
import type { HistoryLine, SagaDetail } from "../admin/index.ts";
import type { Bus } from "../app/index.ts";
import { isSagaboxError } from "../errors/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { hasEnded } from "../saga/index.ts";
import { pollFor, formatTime, type ProbeOptions } from "./eventually.ts";

/** How a saga ends; `failed` is no end, but nothing moves until a person decides. */
export type SagaEnd = "completed" | "compensated" | "failed";

const LAST_LINES = 10;

/**
 * Resolves with the saga as soon as it has ended like this, or in any way if none is given. Rejects at once when it has
 * ended otherwise and nobody has called it back, and when time is over; the error tells where it stands and how it came
 * there.
 */
export async function sagaEnds(
  bus: Bus,
  sagaId: string,
  end?: SagaEnd,
  options: ProbeOptions = {},
): Promise<SagaDetail> {
  const isReached = ({ status }: SagaDetail): boolean =>
    end === undefined ? hasEnded(status) || status === "failed" : status === end;
  // What was compensated stays so. What was completed does too, unless somebody has called it back and no worker has
  // taken that up yet, or its parent, which can call it back at any time, may still do so.
  const isUnreachable = ({ status, waitingMail, parent }: SagaDetail): boolean =>
    status === "compensated" || (status === "completed" && waitingMail === 0 && parent === null);
  return probeSaga(bus, sagaId, options, {
    wanted: end === undefined ? "to end" : `to be ${end}`,
    isIt: isReached,
    neverWill: isUnreachable,
  });
}

/** Resolves with the saga as soon as this step is under way: "pay", "prepare.pay" in a group, "undo of pay". */
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

/** The names under which a step is waited for; a step of a later round also without its round. */
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
  if (saga === undefined) return ["There is no such saga, or the database did not tell."];
  const { id, type, definitionVersion, correlationId, status, waitsFor, dueAt, lastError, incident } = saga;
  const { waitingSince, cause } = saga;
  const lines = await bus.sagas.history(id, { limit: 10_000 }).catch(() => []);
  return [
    `It is a "${type}" (version ${definitionVersion}) with the key "${correlationId}", and is ${status}.`,
    ...(waitsFor === null ? [] : [`It waits for ${waitsFor}, since ${waitingSince}.`]),
    ...(dueAt === null ? [] : [`It is looked at again at ${dueAt}, even if nothing comes.`]),
    ...(cause === null ? [] : [`It turned back: ${cause}.`]),
    ...(lastError === null ? [] : [`Its last error: ${lastError}`]),
    ...(incident === null ? [] : [`A person has to decide about ${incident.steps.join(", ")}.`]),
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
