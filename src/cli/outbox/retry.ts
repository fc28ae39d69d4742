import { retryNow } from "../../admin/index.ts";
import { readActorAndReason } from "../actor.ts";
import type { CommandInput, Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { withSchema } from "../settings.ts";

export async function retry(input: CommandInput, io: Io): Promise<number> {
  const [, id = ""] = input.positionals;
  const by = readActorAndReason(input, io);
  const retried = await withSchema(input, io, "operator", (database, schema) =>
    retryNow(database, schema, id, by),
  );
  if (input.values["json"] === true) io.out(jsonText(retried));
  else
    io.out(safeLines(`${id} is tried at once instead of at ${retried.wasDueAt}. See: sagabox explain ${id}`));
  return DONE;
}
