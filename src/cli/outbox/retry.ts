import { retryNow } from "../../admin/index.ts";
import { whoAndWhy } from "../acting.ts";
import type { CommandInput, Io } from "../command.ts";
import { DONE } from "../exit-codes.ts";
import { json, safeLines } from "../print.ts";
import { withSchema } from "../settings.ts";

export async function retry(input: CommandInput, io: Io): Promise<number> {
  const [, id = ""] = input.positionals;
  const by = whoAndWhy(input, io);
  const retried = await withSchema(input, io, "operator", (database, schema) =>
    retryNow(database, schema, id, by),
  );
  if (input.values["json"] === true) io.out(json(retried));
  else
    io.out(safeLines(`${id} is tried at once instead of at ${retried.wasDueAt}. See: sagabox explain ${id}`));
  return DONE;
}
