import { SagaboxError } from "../errors/index.ts";

/**
 * The states of a message in the outbox. It is written `pending`. The process that wrote it may lease it and send it
 * (`optimistic`), otherwise the relay that owns its lane sends it (`claimed`). Confirmed by the transport it is `sent`.
 * A rejected message is `failed` until its next attempt is due. Without attempts left, refused, expired or buried by an
 * operator it is a `dead_letter`, which only an operator can replay. A lease that expires makes it `pending` again.
 */
export const messageStates = ["pending", "optimistic", "claimed", "sent", "failed", "dead_letter"] as const;
export type MessageState = (typeof messageStates)[number];

export interface Move {
  readonly name: string;
  readonly from: MessageState;
  readonly to: MessageState;
  /** A condition besides the state. */
  readonly guard?: "attempts-exhausted" | "due";
}

/**
 * All moves between states. `transition`, the settle code, the guard in the database (see scripts/move-guard.ts) and the
 * diagram derive from this table.
 */
export const moves = [
  { name: "attempt_optimistic_send", from: "pending", to: "optimistic" },
  { name: "claim_for_processing", from: "pending", to: "claimed" },
  { name: "optimistic_send_succeeded", from: "optimistic", to: "sent" },
  { name: "optimistic_send_failed", from: "optimistic", to: "pending" },
  { name: "publish_succeeded", from: "claimed", to: "sent" },
  { name: "publish_failed", from: "claimed", to: "failed" },
  { name: "retry", from: "failed", to: "pending", guard: "due" },
  { name: "move_to_dlq", from: "failed", to: "dead_letter", guard: "attempts-exhausted" },
  { name: "manual_retry_dlq", from: "dead_letter", to: "pending" },
  { name: "lease_expired", from: "claimed", to: "pending" },
  { name: "lease_expired", from: "optimistic", to: "pending" },
  { name: "reject", from: "claimed", to: "dead_letter" },
  { name: "bury", from: "pending", to: "dead_letter" },
  { name: "bury", from: "failed", to: "dead_letter" },
  { name: "bury", from: "claimed", to: "dead_letter" },
  { name: "republish", from: "sent", to: "pending" },
] as const satisfies readonly Move[];

export type MoveName = (typeof moves)[number]["name"];

export interface MessageFacts {
  readonly state: MessageState;
  readonly attempts: number;
  readonly maxAttempts: number;
  /** Whether its next attempt is due, by the database clock. */
  readonly due: boolean;
}

/** Returns the states that a single move can lead to. */
export function nextStates(state: MessageState): MessageState[] {
  return [...new Set(allMoves.filter((move) => move.from === state).map((move) => move.to))];
}

/** Returns true if a move leads from one state to the other, apart from its guard. */
export function canTransition(from: MessageState, to: MessageState): boolean {
  return allMoves.some((move) => move.from === from && move.to === to);
}

/** Returns the state after the move. Throws OUTBOX_ILLEGAL_MOVE if the state or the guard does not allow it. */
export function transition(facts: MessageFacts, name: MoveName): MessageState {
  const move = allMoves.find((candidate) => candidate.name === name && candidate.from === facts.state);
  if (move === undefined)
    throw illegalMove(facts, name, `it leads out of ${listOrigins(name).join(" or ")} only`);
  if (move.guard === "attempts-exhausted" && facts.attempts < facts.maxAttempts) {
    throw illegalMove(facts, name, `only ${facts.attempts} of ${facts.maxAttempts} attempts are used up`);
  }
  if (move.guard === "due" && !facts.due) throw illegalMove(facts, name, "its next attempt is not due yet");
  return move.to;
}

/** Returns a message after the move. A failed publish counts as an attempt. Throws OUTBOX_ILLEGAL_MOVE. */
export function applyMove(facts: MessageFacts, name: MoveName): MessageFacts {
  const attempts = name === "publish_failed" ? facts.attempts + 1 : facts.attempts;
  return { ...facts, state: transition(facts, name), attempts };
}

/** Returns true if no move but a republish by an operator leads out of the state. */
export function isFinal(state: MessageState): boolean {
  return allMoves.every((move) => move.from !== state || move.name === "republish");
}

/** Returns the state machine as a Mermaid diagram. */
export function stateDiagram(): string {
  const arrows = moves.map((move) => {
    const guard = (move as Move).guard;
    return `  ${move.from} --> ${move.to}: ${move.name}${guard === undefined ? "" : ` [${guard}]`}`;
  });
  return ["stateDiagram-v2", "  [*] --> pending", ...arrows, "  sent --> [*]"].join("\n");
}

const allMoves: readonly Move[] = moves;

function listOrigins(name: MoveName): MessageState[] {
  return allMoves.filter((move) => move.name === name).map((move) => move.from);
}

function illegalMove(facts: MessageFacts, name: string, why: string): SagaboxError {
  return new SagaboxError(
    "OUTBOX_ILLEGAL_MOVE",
    `A ${facts.state} message cannot make the move ${name}: ${why}. Possible next states: ` +
      `${nextStates(facts.state).join(", ") || "none"}.`,
  );
}
