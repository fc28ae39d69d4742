import {
  dataHash,
  readDeadLetter,
  replayDeadLetter,
  type DeadLetter,
  type ReplayedDeadLetter,
} from "../../dead-letter/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import type { AnyContract } from "../../message/index.ts";
import { readOperator } from "../saga-admin.ts";
import { checkEdit, type CheckedEdit } from "./check-edit.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

export interface EditOptions {
  /** JSON. */
  readonly data: string;
  /** Finds the contract by the consumer, null for the outbox, and the type. Without it only JSON is checked. */
  readonly contractOf?: (consumer: string | null, type: string) => AnyContract | undefined;
}

/** What an edit would change. */
export interface EditPlan {
  readonly letter: DeadLetter;
  readonly edit: CheckedEdit;
  readonly beforeHash: string;
  readonly afterHash: string;
}

/** Checks new data for a letter and changes nothing. */
export async function planEdit(admin: DeadLetterAdmin, id: string, options: EditOptions): Promise<EditPlan> {
  const letter = await readDeadLetter(admin.store, id);
  if (letter.closedAs !== null) {
    throw new SagaboxError(
      "DEAD_LETTER_CLOSED",
      `Dead letter ${id} was ${letter.closedAs} at ${letter.closedAt}.`,
    );
  }
  const { type } = letter.message;
  const contract = options.contractOf?.(letter.consumer, type);
  if (options.contractOf !== undefined && contract === undefined) {
    throw new SagaboxError(
      "HANDLER_MISSING",
      `The application has no handler of ${letter.consumer ?? "any consumer"} for "${type}", so there is no contract to ` +
        "check the data against. Give the module that has it, or none at all.",
    );
  }
  const edit = await checkEdit(letter, options.data, contract);
  return { letter, edit, beforeHash: dataHash(letter.message.data), afterHash: dataHash(edit.data) };
}

/**
 * Replays a letter with other data under its own id, so that a message whose effect had happened is still recognised.
 * The letter keeps the data that died; who changed them, why, and both hashes are kept beside it.
 */
export async function editDeadLetter(
  admin: DeadLetterAdmin,
  id: string,
  { actor, reason, ...options }: EditOptions & { readonly actor: string; readonly reason: string },
): Promise<EditPlan & Pick<ReplayedDeadLetter, "table">> {
  const by = readOperator("deadLetters.edit", { actor, reason });
  const { store } = admin;
  const entry = { ...by, action: "dead_letter.edit", target: { kind: "dead_letter", id: String(id) } };
  const plan = await planEdit(admin, id, options).catch(async (error: unknown) => {
    await store.audit.recordFailure(store.database, entry, error).catch(() => undefined);
    throw error;
  });
  const { table, lane } = await replayDeadLetter(store, id, by, plan.edit);
  await admin.wake([lane]);
  return { ...plan, table };
}
