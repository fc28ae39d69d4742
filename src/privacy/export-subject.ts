import { isSagaboxError } from "../errors/index.ts";
import { findEncryptedReply, type Json, type Message, type UnpackedPayload } from "../message/index.ts";
import { toArrayLiteral } from "../storage/index.ts";
import { subjectAuditEntry, checkActionReason, type ActionReason } from "./options.ts";
import type { PrivacyEngine } from "./engine.ts";
import { MessageCipher } from "./message-cipher.ts";

/** A message or saga with data of the subject, decrypted. */
export interface ExportedLine {
  readonly kind: "message" | "scheduled" | "dead letter" | "saga";
  readonly id: string;
  readonly type: string;
  /** When it was written (message), is due (scheduled), failed (dead letter) or started (saga). */
  readonly at: string;
  readonly data: Json;
}

export interface Exporter {
  readonly engine: PrivacyEngine;
  /** Fetches and opens the payload of a message. */
  readonly open: (message: Message) => Promise<UnpackedPayload>;
  /** Decrypts the data of a saga. */
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
  readonly dead_letter_id?: string;
  readonly type: string;
  readonly headers: string;
  readonly data: string;
  readonly at: string;
}

const PAGE = 50;

/**
 * Exports all encrypted data of one subject: archived, scheduled and dead-lettered messages, and sagas. They are found by
 * the ids of the subject's keys, which are in a header and in each encrypted value; data in a blob store is found by the
 * header only. Pages of rows are read while the caller iterates.
 */
export async function* exportSubject(
  exporter: Exporter,
  given: string,
  options: ActionReason,
): AsyncGenerator<ExportedLine, void, undefined> {
  const { database, sql, index, guard, audit } = exporter.engine;
  const subject = index.subject(given);
  // The audit entry is written first, because the caller may stop reading at any point.
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

async function* readPages<R extends { readonly id: string; readonly dead_letter_id?: string }>(
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
    after = last.dead_letter_id ?? last.id;
  }
}

async function toExportedLine(
  exporter: Exporter,
  kind: ExportedLine["kind"],
  row: MessageRow,
): Promise<ExportedLine> {
  const { id, type, at } = row;
  // Decryption reads only the id, the type, the headers and the data.
  const message = { ...row, headers: JSON.parse(row.headers) as Message["headers"] } as unknown as Message;
  return { kind, id, type, at, data: await readData(exporter, message) };
}

// Data that cannot be decrypted is exported as unreadable, so that the export continues.
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
