import { readReplyTopic, type Message } from "../message/index.ts";
import type { CommitStatement } from "../storage/index.ts";
import type { Attempt } from "./attempt.ts";
import { claimCommands, findEffect } from "./claim-commands.ts";
import type { InboxEngine } from "./engine.ts";
import type { Earlier } from "./references.ts";
import { respond, respondFailed, type FailureReply } from "./respond.ts";

/** A message whose handler decided that nothing is to be done. */
export interface PassedMessage {
  readonly consumer: string;
  readonly id: string;
  readonly message: Message;
  readonly given: FailureReply;
  /** False for a stranger's message, whose headers mean nothing to us. */
  readonly answering: boolean;
  /** What it stands for must not be done either, should it come late. */
  readonly supersedes: Earlier | undefined;
}

/**
 * Notes that the message was seen without effect, and answers; resolves with what is left to write. The handler's own
 * transaction is over by now, so another worker may have handled the message, or an earlier copy of it, in between: then
 * that is what counts.
 */
export async function passOver(
  current: Attempt,
  engine: InboxEngine,
  { consumer, id, message, given, answering, supersedes }: PassedMessage,
): Promise<readonly CommitStatement[]> {
  const { topic, type } = message;
  const { sql } = engine;
  const asked = answering && readReplyTopic(message.headers) !== undefined;
  if (!asked && supersedes === undefined) {
    return [{ statement: sql.passOver, params: [consumer, id, topic, type] }];
  }
  const claim = { consumer, id, topic, type, payload: null, expiresAt: null };
  if (!(await claimCommands(current.tx, engine, claim, [supersedes]))) return [];
  const effect = supersedes && (await findEffect(current.tx, engine, consumer, supersedes));
  if (effect !== undefined) {
    await respond(current.scope, message, id, effect.result);
    return [{ statement: sql.adopt, params: [consumer, id, effect.id, effect.stored] }];
  }
  await respondFailed(current.scope, message, id, given);
  return [{ statement: sql.withoutEffect, params: [consumer, id] }];
}
