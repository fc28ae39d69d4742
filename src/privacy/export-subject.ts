import { isSagaboxError } from "../errors/index.ts";
import { findEncryptedReply, type Json, type Message, type UnpackedPayload } from "../message/index.ts";
import { toArrayLiteral } from "../storage/index.ts";
import { subjectAuditEntry, checkActionReason, type ActionReason } from "./action-reason.ts";
import type { PrivacyEngine } from "./engine.ts";
import { MessageCipher } from "./message-cipher.ts";

/** Something that is held about a person, opened. */
export interface ExportedLine {
  readonly kind: "message" | "scheduled" | "dead letter" | "saga";
  readonly id: string;
  readonly type: string;
  /** When it was written, is due, died or began. */
  readonly at: string;
  readonly data: Json;
}

export interface Exporter {
  readonly engine: PrivacyEngine;
  /** Fetches and opens the payload of a message. */
  readonly open: (message: Message) => Promise<UnpackedPayload>;
  /** Opens what a saga holds. */
  readonly openSaga: (row: SagaRow) => Promise<Json>;
}

export interface SagaRow {
  readonly id: string;
  readonly type: string;
  readonly status: string;
  readonly input: string;
  readonly state: string;
  readonly version: number;
  readonly at: string;
}

interface MessageRow {
  readonly id: string;
  readonly letter_id?: string;
  readonly type: string;
  readonly headers: string;
  readonly data: string;
  readonly at: string;
}

const PAGE = 50;

/**
 * Everything that is held about one person: in the archive, scheduled, dead, and in sagas. Found by the ids of their
 * keys, which each sealed message carries in a header and each sealed value in itself, so that publishing costs no row more.
 * What lies in a blob store is found by a header alone, replies too. A few are in memory at a time.
 */
export async function* exportSubject(
  exporter: Exporter,
  given: string,
  options: ActionReason,
): AsyncGenerator<ExportedLine, void, undefined> {
  const { database, sql, index, guard, audit } = exporter.engine;
  const subject = index.subject(given);
  // Written before anything is handed out, since how much of it is read nobody can tell.
  await audit.runAudited(
    database,
    subjectAuditEntry("privacy.export", subject, checkActionReason(options)),
    async (note) => {
      await guard.check(database);
      await note(database);
    },
  );
  const { rows } = await database.run<{ key_id: string }>(sql.keysOf, [subject]);
  const keyIds = toArrayLiteral(rows.map(({ key_id }) => key_id));
  yield* exportArchive(exporter, keyIds);
  yield* readPages(
    "",
    async (after) => (await database.run<MessageRow>(sql.scheduledOf, [keyIds, after])).rows,
    (row) => toExportedLine(exporter, "scheduled", row),
  );
  yield* readPages(
    "0",
    async (after) => (await database.run<MessageRow>(sql.deadLettersOf, [keyIds, after])).rows,
    (row) => toExportedLine(exporter, "dead letter", row),
  );
  yield* readPages(
    "",
    async (after) => (await database.run<SagaRow>(sql.sagasOf, [subject, after])).rows,
    async (row) => ({
      kind: "saga" as const,
      id: row.id,
      type: row.type,
      at: row.at,
      data: await exporter.openSaga(row),
    }),
  );
}

async function* exportArchive(
  exporter: Exporter,
  keyIds: string,
): AsyncGenerator<ExportedLine, void, undefined> {
  const { database, sql } = exporter.engine;
  const { rows: found } = await database.run<{ id: string; written_on: string }>(sql.messagesOf, [keyIds]);
  for (let at = 0; at < found.length; at += PAGE) {
    const page = found.slice(at, at + PAGE);
    const params = [
      toArrayLiteral(page.map(({ id }) => id)),
      toArrayLiteral(page.map(({ written_on }) => written_on)),
    ];
    const { rows } = await database.run<MessageRow>(sql.messages, params);
    for (const row of rows) yield await toExportedLine(exporter, "message", row);
  }
}

async function* readPages<R extends { readonly id: string; readonly letter_id?: string }>(
  first: string,
  read: (after: string) => Promise<readonly R[]>,
  show: (row: R) => Promise<ExportedLine>,
): AsyncGenerator<ExportedLine, void, undefined> {
  let after = first;
  for (;;) {
    const rows = await read(after);
    for (const row of rows) yield await show(row);
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.letter_id ?? last.id;
  }
}

async function toExportedLine(
  exporter: Exporter,
  kind: ExportedLine["kind"],
  row: MessageRow,
): Promise<ExportedLine> {
  const { id, type, at } = row;
  // Opening looks at nothing but the id, the type, the headers and the data.
  const message = { ...row, headers: JSON.parse(row.headers) as Message["headers"] } as unknown as Message;
  return { kind, id, type, at, data: await readData(exporter, message) };
}

// One that cannot be opened must not keep the others from their person.
async function readData({ engine, open }: Exporter, message: Message): Promise<Json> {
  try {
    const { data } = await open(message);
    const answered = findEncryptedReply(message.type, data);
    if (answered === undefined) return data;
    const { data: reply } = await new MessageCipher(engine.keys, engine.index).openReply(
      answered.sealed,
      answered.reply,
    );
    return { ...answered, reply };
  } catch (error) {
    if (isSagaboxError(error, "PRIVACY_KEYS_UNAVAILABLE") || !isSagaboxError(error)) throw error;
    return { $unreadable: error.code };
  }
}
