import { validateReply, type AnyContract } from "../message/index.ts";
import type { Attempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import type { Received } from "./handler.ts";

/** A command's answer is held to its reply schema, its personal fields are sealed; an event's result is kept as it is. */
export async function prepareAnswer(
  { sealReply }: Pick<InboxEngine, "sealReply">,
  contract: AnyContract,
  { data }: Pick<Received, "data">,
  answer: unknown,
  { tx }: Pick<Attempt, "tx">,
): Promise<unknown> {
  if (contract.kind !== "command") return answer;
  const reply = await validateReply(contract, answer);
  return reply === undefined || encryptedReplyName(contract) === undefined
    ? reply
    : sealReply(contract, data, reply, tx);
}

/** The command whose replies have personal fields, by its name. */
export function encryptedReplyName({
  name,
  personal,
}: Pick<AnyContract, "name" | "personal">): string | undefined {
  return personal === null || personal.reply.length === 0 ? undefined : name;
}
