import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys, text, wholeNumber } from "../../options/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../../storage/index.ts";
import {
  type AdminDatabase,
  canReadContents,
  explainingDatabase,
  keysNotReadable,
} from "../admin-database.ts";
import { type Explanation, explainMessage, type Moment } from "./explain-message.ts";
import { judgeSaga, type NextStep, type SagaFacts, sagaMoments, type SagaLine } from "./judge-saga.ts";
import { findStatements } from "./statements.ts";

/** What to explain: any id or key, or one whose meaning is given. */
export type ExplainTarget =
  string | { readonly key: string } | { readonly correlationId: string } | { readonly traceId: string };

/** What a text was found to be. */
export type Meaning = "message id" | "saga id" | "dead letter" | "key" | "correlation id" | "trace id";

export interface ExplainOptions {
  /** Maximum number of messages, and of sagas, newest first, 1 to 200. Default 20. */
  readonly limit?: number;
}

/** One saga, and what happens next to it. */
export interface SagaExplanation extends SagaFacts {
  readonly next: string;
}

/** One line of the common timeline. */
export interface FoundMoment extends Moment {
  /** The type and id of the message or saga. */
  readonly of: string;
}

/** Everything the database knows about an id or a key. */
export interface Findings {
  readonly asked: string;
  /** Every meaning of the text for which something was found. */
  readonly meanings: readonly Meaning[];
  /** True if the role may not read contents. Keys cannot be searched then. */
  readonly isMasked: boolean;
  /** True if there are more messages or sagas than `limit`. */
  readonly isCut: boolean;
  /** Oldest first. */
  readonly messages: readonly Explanation[];
  /** Oldest first. */
  readonly sagas: readonly SagaExplanation[];
  /** The events of all messages and sagas, oldest first. */
  readonly timeline: readonly FoundMoment[];
  /** What happens next: one entry for each message, consumer or saga that is not finished. */
  readonly next: readonly NextStep[];
}

/**
 * Explains the messages and sagas that belong to a message id, saga id, dead-letter number, business key, correlation id or
 * trace id. A key also finds the commands and replies of its sagas. Read-only. Throws MESSAGE_NOT_FOUND if nothing is known.
 */
export async function explain(
  source: Database,
  schema: string,
  target: ExplainTarget,
  options: ExplainOptions = {},
): Promise<Findings> {
  rejectUnknownKeys("explain", options, ["limit"]);
  const limit = wholeNumber("explain: limit", options.limit ?? 20, { min: 1, max: 200 });
  const { asked, given } = readTarget(target);
  const quoted = quoteSchema(schema);
  const database = explainingDatabase(source, quoted);
  const isOpen = await canReadContents(database, quoted);
  if (given === "key" && !isOpen) throw keysNotReadable();
  const found = await find(database, findStatements(quoted, isOpen), { asked, given, isOpen, limit });
  if (found.meanings.length === 0) throw nothingFound(asked, given, isOpen);
  const messages: Explanation[] = [];
  for (const id of found.messages.slice(0, limit).toReversed()) {
    messages.push(await explainMessage(source, schema, id));
  }
  const sagas = await readSagas(database, findStatements(quoted, isOpen), found.sagas.slice(0, limit));
  return {
    asked,
    meanings: found.meanings,
    isMasked: !isOpen,
    isCut: found.messages.length > limit || found.sagas.length > limit,
    messages,
    sagas: sagas.map(({ facts }) => ({ ...facts, next: judgeSaga(facts).next })),
    timeline: mergeTimelines(messages, sagas),
    next: [...sagas.flatMap(({ facts }) => nextOfSaga(facts)), ...messages.flatMap(nextOfMessage)],
  };
}

function readTarget(target: ExplainTarget): { asked: string; given?: Meaning } {
  if (typeof target === "string") return { asked: text("explain: the id or key", target, { max: 255 }) };
  rejectUnknownKeys("explain: the target", target, ["key", "correlationId", "traceId"]);
  const entries = Object.entries(target);
  const [name = "", value] = entries[0] ?? [];
  if (entries.length !== 1) {
    throw new SagaboxError("OPTIONS_INVALID", "explain needs exactly one of key, correlationId and traceId.");
  }
  const given = { key: "key", correlationId: "correlation id", traceId: "trace id" }[name] as Meaning;
  return { asked: text(`explain: ${name}`, value, { max: 255 }), given };
}

export interface KnownIds {
  readonly isMessage: boolean;
  readonly isSaga: boolean;
  readonly isDeadLetter: boolean;
}

/**
 * Decides which meanings of a text are searched. An id of a message or saga is unique, so nothing else is searched. A
 * number may be a dead letter and a key at once; both are explained then. Pure.
 */
export function chooseMeanings(
  asked: string,
  { isMessage, isSaga, isDeadLetter }: KnownIds,
  canReadKeys: boolean,
): readonly Meaning[] {
  if (isMessage || isSaga) {
    return [...(isMessage ? ["message id" as const] : []), ...(isSaga ? ["saga id" as const] : [])];
  }
  const isTraceId = /^[0-9a-f]{32}$/.test(asked);
  return [
    ...(isDeadLetter ? ["dead letter" as const] : []),
    ...(canReadKeys ? ["key" as const] : []),
    "correlation id",
    ...(isTraceId ? ["trace id" as const] : []),
  ];
}

interface Search {
  readonly asked: string;
  readonly given?: Meaning | undefined;
  readonly isOpen: boolean;
  readonly limit: number;
}

interface Found {
  readonly meanings: readonly Meaning[];
  /** Ids, newest first, at most one more than the limit. */
  readonly messages: readonly string[];
  readonly sagas: readonly string[];
}

type FindStatements = ReturnType<typeof findStatements>;

async function find(database: AdminDatabase, sql: FindStatements, search: Search): Promise<Found> {
  const { asked, given, isOpen, limit } = search;
  const tx = await database.begin();
  try {
    await tx.run(sql.avoidFullScans);
    const ids = async (statement: Parameters<typeof tx.run>[0], ...params: string[]): Promise<string[]> =>
      (await tx.run<{ id: string }>(statement, [asked, limit + 1, ...params])).rows.map(({ id }) => id);
    const number = /^\d{1,18}$/.test(asked) ? asked : null;
    const [row] = (await tx.run<IdsRow>(sql.ids, [asked, number])).rows;
    const letter = row?.letter ?? null;
    const known = {
      isMessage: row?.message === true,
      isSaga: row?.saga === true,
      isDeadLetter: letter !== null,
    };
    const found: { meaning: Meaning; messages: string[]; sagas: string[] }[] = [];
    for (const meaning of given === undefined ? chooseMeanings(asked, known, isOpen) : [given]) {
      found.push({ meaning, ...(await findBy(meaning)) });
    }
    const hits = found.filter(({ messages, sagas }) => messages.length + sagas.length > 0);
    return {
      meanings: hits.map(({ meaning }) => meaning),
      messages: [...new Set(hits.flatMap(({ messages }) => messages))],
      sagas: [...new Set(hits.flatMap(({ sagas }) => sagas))],
    };

    async function findBy(meaning: Meaning): Promise<{ messages: string[]; sagas: string[] }> {
      switch (meaning) {
        case "message id":
          return { messages: [asked], sagas: [] };
        case "dead letter":
          return { messages: letter === null ? [] : [letter], sagas: [] };
        case "saga id":
          return { messages: await ids(sql.messages("sagaId")), sagas: [asked] };
        case "key": {
          const sagas = await ids(sql.sagasByKey);
          return { messages: await ids(sql.messages("key"), toArrayLiteral(sagas)), sagas };
        }
        case "correlation id":
          return {
            messages: await ids(sql.messages("correlationId")),
            sagas: await ids(sql.sagasByCorrelation),
          };
        case "trace id":
          return { messages: await ids(sql.messages("traceId")), sagas: await ids(sql.sagasByTrace) };
      }
    }
  } finally {
    await tx.rollback();
  }
}

interface IdsRow {
  readonly message: boolean;
  readonly saga: boolean;
  readonly letter: string | null;
}

/** Upper bound for the lines of one saga in the timeline. */
const MAX_SAGA_LINES = 500;

interface SagaStory {
  readonly facts: SagaFacts;
  readonly lines: readonly SagaLine[];
}

async function readSagas(
  database: AdminDatabase,
  sql: FindStatements,
  ids: readonly string[],
): Promise<readonly SagaStory[]> {
  const stories: SagaStory[] = [];
  for (const id of ids.toReversed()) {
    const [facts] = (await database.run<SagaFacts & Row>(sql.saga, [id])).rows;
    if (facts === undefined) continue;
    const { rows } = await database.run<SagaLine & Row>(sql.history, [id, MAX_SAGA_LINES]);
    stories.push({ facts, lines: rows });
  }
  return stories;
}

type Row = Readonly<Record<string, unknown>>;

function mergeTimelines(
  messages: readonly Explanation[],
  sagas: readonly SagaStory[],
): readonly FoundMoment[] {
  return [
    ...messages.flatMap(({ message: { id, type }, timeline }) =>
      timeline.map((moment) => ({ ...moment, of: `${type} ${id}` })),
    ),
    ...sagas.flatMap(({ facts: { id, type }, lines }) =>
      sagaMoments(lines).map((moment) => ({ ...moment, of: `saga ${type} ${id}` })),
    ),
  ].toSorted((a, b) => a.at.localeCompare(b.at));
}

function nextOfSaga(facts: SagaFacts): readonly NextStep[] {
  if (facts.completedAt !== null) return [];
  return [{ of: `saga ${facts.type} ${facts.id}`, ...judgeSaga(facts) }];
}

const FINISHED: readonly string[] = ["sent", "handled", "not handled"];

function nextOfMessage({ message: { id, type }, standings }: Explanation): readonly NextStep[] {
  return standings
    .filter(({ state }) => !FINISHED.includes(state))
    .map(({ where, state, why, next }) => ({ of: `${type} ${id}`, state: `${where}: ${state}`, why, next }));
}

function nothingFound(asked: string, given: Meaning | undefined, isOpen: boolean): SagaboxError {
  const tried =
    given === undefined
      ? `message id, saga id, dead letter, ${isOpen ? "key, " : ""}correlation id or trace id`
      : given;
  const hidden = isOpen || given !== undefined ? "" : " A viewer cannot search keys.";
  return new SagaboxError(
    "MESSAGE_NOT_FOUND",
    `There is no message and no saga with the ${tried} ${JSON.stringify(asked)} in this database: it was rolled back, was ` +
      `never written here, or its time in the archive is over.${hidden}`,
  );
}
