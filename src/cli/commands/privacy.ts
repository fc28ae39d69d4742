import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Erasure } from "../../admin/index.ts";
import { runAction, type Action, type Actions } from "../actions.ts";
import { type Command, type CommandInput, DONE, FAILED, FOUND, type Io, UsageError } from "../command.ts";
import { jsonText, safeLines } from "../print.ts";
import {
  type Privacy,
  privacyOptions,
  readOptionalReason,
  readReason,
  readSubject,
  withPrivacy,
} from "../privacy/with-privacy.ts";

type PrivacyAction = (
  privacy: Privacy,
  input: CommandInput,
  io: Io,
  argument: string,
) => Promise<ActionOutput | undefined>;

const SUBJECT_OPTIONS = ["subject-file", "reason", "actor", "app"];
const SUBJECT_ARGUMENT = { argument: "the id of a data subject", isOptional: true } as const;

const actions: Actions = {
  status: {
    reads: ["app"],
    run: runWith(async (privacyApi) => {
      const value = await privacyApi.status();
      return { value, text: statusText(value) };
    }),
  },
  export: {
    reads: SUBJECT_OPTIONS,
    ...SUBJECT_ARGUMENT,
    run: runWith(async (privacyApi, input, io, subject) => {
      const lines = privacyApi.export(readSubject(input, io, subject), readReason(input, io));
      for await (const line of lines) io.out(JSON.stringify(line));
      return undefined;
    }),
  },
  hold: {
    reads: SUBJECT_OPTIONS,
    ...SUBJECT_ARGUMENT,
    run: runWith(async (privacyApi, input, io, subject) =>
      holdOutput(await privacyApi.hold(readSubject(input, io, subject), readReason(input, io))),
    ),
  },
  release: {
    reads: SUBJECT_OPTIONS,
    ...SUBJECT_ARGUMENT,
    run: runWith(async (privacyApi, input, io, subject) =>
      releaseOutput(await privacyApi.release(readSubject(input, io, subject), readReason(input, io))),
    ),
  },
  rewrap: {
    reads: ["reason", "actor", "app"],
    run: runWith(async (privacyApi, input, io) =>
      rewrapOutput(
        await privacyApi.rewrap({
          ...readOptionalReason(input, io),
          onProgress: ({ rewrapped, left }) => io.err(`${rewrapped} rewrapped, ${left} left`),
        }),
      ),
    ),
  },
  erasures: {
    reads: ["app"],
    run: runWith(async (privacyApi, _, io) => {
      for await (const line of privacyApi.erasures()) io.out(JSON.stringify(line));
      return undefined;
    }),
  },
  reapply: {
    reads: ["reason", "actor", "app"],
    argument: "a file",
    isOptional: true,
    run: runWith(async (privacyApi, input, io, file) => {
      const erasures = file === "" ? undefined : readErasures(file, io);
      return reapplyOutput(await privacyApi.reapply(erasures, readOptionalReason(input, io)));
    }),
  },
  "end-saga": {
    reads: ["reason", "actor", "app"],
    argument: "the id of a saga instance",
    run: runWith(async (privacyApi, input, io, id) =>
      endSagaOutput(await privacyApi.endSaga(id, readReason(input, io))),
    ),
  },
};

/** Opens the key store, runs the action and prints its output. */
function runWith(work: PrivacyAction): Action["run"] {
  return async (input, io, argument) => {
    const output = await withPrivacy(input, io, (privacyApi) => work(privacyApi, input, io, argument));
    if (output === undefined) return DONE;
    io.out(input.values["json"] === true ? jsonText(output.value) : safeLines(output.text));
    return output.code ?? DONE;
  };
}

export const privacy: Command = {
  name: "privacy",
  summary: "Export personal data, hold or repeat erasures, and rotate keys.",
  usage: [
    "privacy status",
    "privacy export <subject> | --subject-file <file> --reason <text>",
    "privacy hold|release <subject> | --subject-file <file> --reason <text>",
    "privacy rewrap",
    "privacy erasures",
    "privacy reapply [<file>]",
    "privacy end-saga <id> --reason <text>",
  ],
  actions: Object.keys(actions),
  details: `  status    Count the data keys per wrapping key, the erasures and the holds.
  export    Print all data about a data subject, decrypted, one JSON object per line.
  hold      Prevent the erasure of a data subject; release ends the hold.
  rewrap    Wrap every data key with the current key of the key ring. Can be stopped and continued.
  erasures  Print the erasure log, one JSON object per line. Store a copy separately from the backups.
  reapply   After a restore: repeat the erasures that the backup undid, from the log or from a copy of it. Exit code 3 if
            the proof of a line is invalid; that line is skipped.
  end-saga  End a saga that was parked because its data subject was erased. Exit code 1 if it is not such a saga.

Examples:
  sagabox privacy status
  sagabox privacy export --subject-file id.txt --reason "request 4711" > copy.ndjson
  sagabox privacy hold --subject-file id.txt --reason "lawsuit 12"
  sagabox privacy release --subject-file id.txt --reason "lawsuit 12 is over"
  sagabox privacy rewrap
  sagabox privacy erasures > erasures.ndjson
  sagabox privacy reapply erasures.ndjson
  sagabox privacy end-saga 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11 --reason "request 4711"

Connects to DATABASE_URL and reads the keys from SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING.`,
  options: privacyOptions,
  run: (input, io) => runAction("privacy", actions, input, io),
};

function readErasures(file: string, { cwd }: Io): Erasure[] {
  try {
    const lines = readFileSync(resolve(cwd, file), "utf8").split("\n");
    return lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as Erasure);
  } catch {
    throw new UsageError(`${file} cannot be read as a list of erasures with one JSON object per line.`);
  }
}

type ResultOf<Name extends "reapply" | "rewrap"> = Awaited<ReturnType<Privacy[Name]>>;

/** Output of an action: `value` for --json, `text` otherwise, and the exit code (default 0). */
interface ActionOutput {
  readonly value: unknown;
  readonly text: string;
  readonly code?: number;
}

function holdOutput(held: boolean): ActionOutput {
  const text = held
    ? "Held: this data subject cannot be erased until the hold is released."
    : "It was already held.";
  return { value: { held }, text };
}

function releaseOutput(released: boolean): ActionOutput {
  const text = released
    ? "Released: this data subject can be erased again."
    : "Nothing to release: there is no hold.";
  return { value: { released }, text };
}

function rewrapOutput(value: ResultOf<"rewrap">): ActionOutput {
  const { rewrapped, left } = value;
  const nextStep =
    left === 0
      ? "No data key is wrapped by an older key any more. Older keys can be removed from the key ring."
      : `${left} data key(s) are left: run it again before you remove an older key from the key ring.`;
  return { value, text: `${rewrapped} data key(s) rewrapped with the current key. ${nextStep}` };
}

function reapplyOutput(value: ResultOf<"reapply">): ActionOutput {
  const { erasures, keysDestroyed, refused } = value;
  const done = `${erasures} erasure(s) repeated, ${keysDestroyed} restored key(s) destroyed.`;
  if (refused === 0) return { value, text: done };
  const why = "the proof is invalid, or was made with another index key of the key ring";
  return {
    value,
    text: `${done}\n${refused} line(s) skipped: ${why}.`,
    code: FOUND,
  };
}

function endSagaOutput(ended: boolean): ActionOutput {
  if (ended) return { value: { ended }, text: "Ended in its current state. Nothing was undone." };
  const text = "Nothing was ended: no saga with this id is parked because its data subject was erased.";
  return { value: { ended }, text, code: FAILED };
}

function statusText(status: Awaited<ReturnType<Privacy["status"]>>): string {
  const { currentKey, keys, destroyed, erasures, unswept, holds, cacheTtlMs } = status;
  const wrapped = Object.entries(keys).map(([name, count]) => `${count} by ${name}`);
  const facts: readonly (readonly [string, string])[] = [
    ["current key", currentKey],
    [
      "data keys",
      `${wrapped.length === 0 ? "none yet" : `wrapped: ${wrapped.join(", ")}`}; ${destroyed} destroyed`,
    ],
    ["erasures", `${erasures}, ${unswept} of them not swept yet`],
    ["holds", String(holds)],
    ["key cache", `other processes forget a destroyed key within ${cacheTtlMs / 1_000} s`],
  ];
  return facts.map(([name, text]) => `${name.padEnd(11)}  ${text}`).join("\n");
}
