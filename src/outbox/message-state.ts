import { SagaboxError } from "../errors/index.ts";

/**
 * The life of a message in the outbox. It is written `pending`; the process that wrote it may hold it back to send it
 * itself (`optimistic`), else the relay that owns its lane takes it (`claimed`). Confirmed by the transport it is
 * `sent`. A failure of its own makes it `failed` until its next attempt is due; out of attempts, refused, expired or
 * buried by a person it is a `dead_letter`, from which only a person brings it back. A lease that ends returns it.
 */
export const messageStates = ["pending", "optimistic", "claimed", "sent", "failed", "dead_letter"] as const;
export type MessageState = (typeof messageStates)[number];

export interface Move {
  readonly name: string;
  readonly from: MessageState;
  readonly to: MessageState;
  /** What must be true besides the state; undefined where nothing is asked. */
  readonly guard?: "attempts-exhausted" | "due";
}

/** The only source: the guard below, the database's table of legal moves and the diagram are made from it. */
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
] as const satisfies readonly Move[];

export type MoveName = (typeof moves)[number]["name"];

export interface MessageFacts {
  readonly state: MessageState;
  readonly attempts: number;
  readonly maxAttempts: number;
  /** Whether its time has come, by the database clock. */
  readonly due: boolean;
}

export function nextStates(state: MessageState): MessageState[] {
  return [...new Set(allMoves.filter((move) => move.from === state).map((move) => move.to))];
}

export function canTransition(from: MessageState, to: MessageState): boolean {
  return allMoves.some((move) => move.from === from && move.to === to);
}

/** The state after the move, or OUTBOX_ILLEGAL_MOVE saying why not. */
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

export function isFinal(state: MessageState): boolean {
  return nextStates(state).length === 0;
}

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
