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

type Work = (
  privacy: Privacy,
  input: CommandInput,
  io: Io,
  argument: string,
) => Promise<ActionOutput | undefined>;

const PERSON = ["subject-file", "reason", "actor", "app"];
const OPTIONAL_SUBJECT = { argument: "the id of a data subject", isOptional: true } as const;

const actions: Actions = {
  status: {
    reads: ["app"],
    run: runWith(async (opened) => {
      const value = await opened.status();
      return { value, text: privacyText(value) };
    }),
  },
  export: {
    reads: PERSON,
    ...OPTIONAL_SUBJECT,
    run: runWith(async (opened, input, io, subject) => {
      const lines = opened.export(readSubject(input, io, subject), readReason(input, io));
      for await (const line of lines) io.out(JSON.stringify(line));
      return undefined;
    }),
  },
  hold: {
    reads: PERSON,
    ...OPTIONAL_SUBJECT,
    run: runWith(async (opened, input, io, subject) =>
      holdOutput(await opened.hold(readSubject(input, io, subject), readReason(input, io))),
    ),
  },
  release: {
    reads: PERSON,
    ...OPTIONAL_SUBJECT,
    run: runWith(async (opened, input, io, subject) =>
      releaseOutput(await opened.release(readSubject(input, io, subject), readReason(input, io))),
    ),
  },
  rewrap: {
    reads: ["reason", "actor", "app"],
    run: runWith(async (opened, input, io) =>
      rewrapOutput(
        await opened.rewrap({
          ...readOptionalReason(input, io),
          onProgress: ({ rewrapped, left }) => io.err(`${rewrapped} rewrapped, ${left} left`),
        }),
      ),
    ),
  },
  erasures: {
    reads: ["app"],
    run: runWith(async (opened, _, io) => {
      for await (const line of opened.erasures()) io.out(JSON.stringify(line));
      return undefined;
    }),
  },
  reapply: {
    reads: ["reason", "actor", "app"],
    argument: "a file",
    isOptional: true,
    run: runWith(async (opened, input, io, file) => {
      const list = file === "" ? undefined : readErasures(file, io);
      return reapplyOutput(await opened.reapply(list, readOptionalReason(input, io)));
    }),
  },
  "end-saga": {
    reads: ["reason", "actor", "app"],
    argument: "the id of a saga instance",
    run: runWith(async (opened, input, io, id) =>
      endSagaOutput(await opened.endSaga(id, readReason(input, io))),
    ),
  },
};

/** Runs the work with the opened keys and prints its output. */
function runWith(work: Work): Action["run"] {
  return async (input, io, argument) => {
    const output = await withPrivacy(input, io, (opened) => work(opened, input, io, argument));
    if (output === undefined) return DONE;
    io.out(input.values["json"] === true ? jsonText(output.value) : safeLines(output.text));
    return output.code ?? DONE;
  };
}

export const privacy: Command = {
  name: "privacy",
  summary: "Give out, hold and count what is kept about persons; change the keys.",
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
  details: `  status    How many data keys each key wraps, and how many persons were erased or are held.
  export    Everything that is held about a person, opened, one JSON object in a line.
  hold      Keep a person from being erased; release ends it.
  rewrap    Wrap every data key with the current key of the ring. May be stopped and started again.
  erasures  The erasure log, one JSON object in a line: keep a copy apart from the backups.
  reapply   After a restore: destroy again what the backup brought back, by the log or by such a copy. Exit code 3 if the
            proof of a line does not hold: nothing was done for that one.
  end-saga  End a saga that was parked because its person was erased. Exit code 1 if it is none of these.

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
    throw new UsageError(`${file} cannot be read as a list of erasures, one JSON object in a line.`);
  }
}

type Answer<Name extends "reapply" | "rewrap"> = Awaited<ReturnType<Privacy[Name]>>;

/** What an action has to say: to a script, to people, and by its exit code. */
interface ActionOutput {
  readonly value: unknown;
  readonly text: string;
  readonly code?: number;
}

function holdOutput(held: boolean): ActionOutput {
  const text = held ? "Held: nobody can erase this person until it is released." : "It was held already.";
  return { value: { held }, text };
}

function releaseOutput(released: boolean): ActionOutput {
  const text = released
    ? "Released: this person can be erased again."
    : "Nothing to release: there is no hold.";
  return { value: { released }, text };
}

function rewrapOutput(value: Answer<"rewrap">): ActionOutput {
  const { rewrapped, left } = value;
  const rest =
    left === 0
      ? "Nothing is wrapped by an older key any more: it can be taken out of the ring."
      : `${left} are left: run it again before an older key is taken out of the ring.`;
  return { value, text: `${rewrapped} data key(s) rewrapped with the current key. ${rest}` };
}

function reapplyOutput(value: Answer<"reapply">): ActionOutput {
  const { erasures, keysDestroyed, refused } = value;
  const done = `${erasures} erasure(s) applied again, ${keysDestroyed} key(s) that were back destroyed.`;
  if (refused === 0) return { value, text: done };
  const why = "their proof does not hold, or was made with another index key of the ring";
  return {
    value,
    text: `${done}\n${refused} line(s) refused: ${why}. Nothing was done for them.`,
    code: FOUND,
  };
}

function endSagaOutput(ended: boolean): ActionOutput {
  if (ended) return { value: { ended }, text: "Ended as it was; nothing was undone." };
  const text = "Nothing was ended: there is no saga of this id that is parked because its person was erased.";
  return { value: { ended }, text, code: FAILED };
}

/** The keys and what was done with them, for people. */
function privacyText(seen: Awaited<ReturnType<Privacy["status"]>>): string {
  const { currentKey, keys, destroyed, erasures, unswept, holds, cacheTtlMs } = seen;
  const wrapped = Object.entries(keys).map(([name, count]) => `${count} by ${name}`);
  const facts: readonly (readonly [string, string])[] = [
    ["current key", currentKey],
    [
      "data keys",
      `${wrapped.length === 0 ? "none yet" : `wrapped: ${wrapped.join(", ")}`}; ${destroyed} destroyed`,
    ],
    ["erasures", `${erasures}, of which ${unswept} are not swept yet (unswept)`],
    ["holds", String(holds)],
    ["key cache", `other processes forget a destroyed key within ${cacheTtlMs / 1_000} s`],
  ];
  return facts.map(([name, text]) => `${name.padEnd(11)}  ${text}`).join("\n");
}
