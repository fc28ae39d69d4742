import { buryLiveMessage } from "../../admin/index.ts";
import { readActorAndReason } from "../actor.ts";
import { textValue, UsageError, type CommandInput, type Io } from "../command.ts";
import { confirmAction } from "../confirm.ts";
import { DONE, STOPPED } from "../exit-codes.ts";
import { jsonText, safeLines } from "../print.ts";
import { withDeadLetters } from "./input.ts";

/** `dlq bury <message-id>` */
export async function bury(input: CommandInput, io: Io): Promise<number> {
  const id = input.positionals[1] ?? "";
  const consumer = textValue(input, "consumer") ?? (input.values["outbox"] === true ? null : undefined);
  if (consumer !== undefined && consumer !== null && input.values["outbox"] === true) {
    throw new UsageError('"sagabox dlq bury" takes --consumer or --outbox, not both.');
  }
  const by = readActorAndReason(input, io);
  const what = `Message ${id} leaves its line and becomes a dead letter.`;
  if (!(await confirmAction(input, io, { what }))) return STOPPED;
  const buried = await withDeadLetters(input, io, (admin) =>
    buryLiveMessage(admin, id, { ...by, ...(consumer === undefined ? {} : { consumer }) }),
  );
  if (input.values["json"] === true) io.out(jsonText(buried));
  else {
    const from = buried.consumer === null ? "the outbox" : `the line of ${buried.consumer}`;
    io.out(safeLines(`Message ${id} was taken out of ${from}; it is dead letter ${buried.letter} now.`));
  }
  return DONE;
}
