import {
  listConsumerNames,
  handledStats,
  listHandled,
  listHandlersFor,
  type HandledMessage,
  type HandledFilter,
} from "../../admin/index.ts";
import { textValue, type CommandInput, type Io } from "../command.ts";
import { DONE, FAILED } from "../exit-codes.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { dropUndefined, numberValue } from "../saga/input.ts";
import { withSchema } from "../settings.ts";

export async function stats(input: CommandInput, io: Io): Promise<number> {
  const consumers = await withSchema(input, io, "viewer", (database, schema) =>
    handledStats(database, schema, textValue(input, "consumer")),
  );
  if (input.values["json"] === true) {
    io.out(jsonText({ consumers }));
    return DONE;
  }
  if (consumers.length === 0) io.out("Nothing was handled yet.");
  else {
    const rows = consumers.map((one) => [one.consumer, one.total, one.oldest, one.lastHour, one.lastDay]);
    io.out(table(["consumer", "total", "oldest", "last hour", "last day"], rows));
  }
  io.out("Duplicates leave no row: they are counted by the metric consumer_inbox_duplicates_total only.");
  return DONE;
}

export async function list(input: CommandInput, io: Io): Promise<number> {
  // The function behind checks these values, and says which are allowed.
  const filter = dropUndefined({
    since: textValue(input, "since"),
    consumer: textValue(input, "consumer"),
    topic: textValue(input, "topic"),
    type: textValue(input, "type"),
    limit: numberValue(input, "limit"),
  }) as HandledFilter;
  const { handled, names } = await withSchema(input, io, "viewer", async (database, schema) => {
    const found = await listHandled(database, schema, filter);
    return { handled: found, names: found.length > 0 ? [] : await listConsumerNames(database, schema) };
  });
  if (input.values["json"] === true) io.out(jsonText({ handled }));
  else if (handled.length > 0) io.out(handledTable(handled));
  else io.out(safeLines(`Nothing was handled in that time.${unknownText(filter.consumer, names)}`));
  return DONE;
}

function unknownText(consumer: string | undefined, names: readonly string[]): string {
  if (consumer === undefined || names.includes(consumer)) return "";
  const known = names.length === 0 ? "none" : names.slice(0, 20).join(", ");
  const more = names.length > 20 ? ` and ${names.length - 20} more` : "";
  return ` No consumer is called ${consumer}; known are: ${known}${more}.`;
}

export async function show(input: CommandInput, io: Io): Promise<number> {
  const [, id = ""] = input.positionals;
  const handled = await withSchema(input, io, "viewer", (database, schema) =>
    listHandlersFor(database, schema, id),
  );
  if (input.values["json"] === true) io.out(jsonText({ messageId: id, handled }));
  else if (handled.length > 0) io.out(handledTable(handled));
  else io.out(safeLines(`No consumer of this database has handled ${id}. See: sagabox explain ${id}`));
  return handled.length > 0 ? DONE : FAILED;
}

function handledTable(handled: readonly HandledMessage[]): string {
  const rows = handled.map((one) => [
    one.handledAt,
    one.consumer,
    one.messageId,
    one.type,
    one.topic,
    one.durationMs,
    effectText(one),
  ]);
  return table(["handled at", "consumer", "message", "type", "topic", "ms", "effect"], rows);
}

function effectText({ hasEffect, effectOf, undoneBy }: HandledMessage): string {
  if (effectOf !== null) return `that of ${effectOf}`;
  if (undoneBy !== null) return `taken back by ${undoneBy}`;
  return hasEffect ? "yes" : "none";
}
