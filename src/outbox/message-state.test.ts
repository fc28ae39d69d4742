import { expect, test } from "vitest";
import {
  applyMove,
  canTransition,
  isFinal,
  messageStates,
  moves,
  nextStates,
  stateDiagram,
  transition,
  type MessageFacts,
  type MoveName,
} from "./message-state.ts";

// The scenarios of the design documents, under their names. A comment explains each intended difference.

const written: MessageFacts = { state: "pending", attempts: 0, maxAttempts: 10, due: true };

function after(facts: MessageFacts, ...names: MoveName[]): MessageFacts {
  return names.reduce(applyMove, facts);
}

/** Claimed and failed this many times; the last failure is not followed by a retry. */
function failing(times: number): MessageFacts {
  const first = after(written, "claim_for_processing", "publish_failed");
  const rest = Array.from(
    { length: times - 1 },
    () => ["retry", "claim_for_processing", "publish_failed"] as const,
  );
  return after(first, ...rest.flat());
}

test("H4, test_initial_state: a message starts pending, which is not final", () => {
  expect(stateDiagram()).toContain("[*] --> pending");
  expect(isFinal("pending")).toBe(false);
});

test("H4, test_optimistic_send_success_path: pending, optimistic, sent", () => {
  const held = after(written, "attempt_optimistic_send");
  expect(held.state).toBe("optimistic");
  expect(after(held, "optimistic_send_succeeded").state).toBe("sent");
  expect(isFinal("sent")).toBe(true);
});

test("H4, test_optimistic_send_failure_fallback: a failed first send leaves the message to the relay", () => {
  expect(after(written, "attempt_optimistic_send", "optimistic_send_failed")).toEqual(written);
});

test("H4, test_polling_worker_success_path: pending, claimed, sent", () => {
  const claimed = after(written, "claim_for_processing");
  expect(claimed.state).toBe("claimed");
  expect(after(claimed, "publish_succeeded").state).toBe("sent");
});

test("H4, test_publish_failure_with_retry: a failure counts as an attempt, and the message is pending again when it is due", () => {
  const failed = failing(1);
  expect(failed).toMatchObject({ state: "failed", attempts: 1 });
  expect(after(failed, "retry").state).toBe("pending");
});

test("H4, test_publish_failure_with_retry: a message is not retried before it is due", () => {
  const early = (): MessageFacts => after({ ...failing(1), due: false }, "retry");
  expect(early).toThrow("its next attempt is not due yet");
});

test("H4, test_max_attempts_move_to_dlq: after the last attempt the message may be dead-lettered", () => {
  const exhausted = failing(10);
  expect(exhausted).toMatchObject({ state: "failed", attempts: 10 });
  expect(after(exhausted, "move_to_dlq").state).toBe("dead_letter");
});

test("H4, test_guard_prevents_premature_dlq: with attempts left a message is not dead-lettered", () => {
  const failed = failing(1);
  expect(() => transition(failed, "move_to_dlq")).toThrow("only 1 of 10 attempts are used up");
  expect(failed.state).toBe("failed");
});

test("H4, test_invalid_transition_prevented: no move leads from pending to sent or from optimistic to claimed", () => {
  expect(canTransition("pending", "sent")).toBe(false);
  const held = after(written, "attempt_optimistic_send");
  expect(() => transition(held, "claim_for_processing")).toThrow(
    expect.objectContaining({ code: "OUTBOX_ILLEGAL_MOVE" }) as Error,
  );
});

test("H4, test_sent_is_final_state: only a republish leads out of sent", () => {
  expect(isFinal("sent")).toBe(true);
  const sent: MessageFacts = { ...written, state: "sent" };
  expect(transition(sent, "republish")).toBe("pending");
  for (const { name } of moves)
    if (name !== "republish") expect(() => transition(sent, name)).toThrow("sent");
});

// The documents keep the attempts of a replayed message, so that its next failure would dead-letter it again. Here a
// replay resets the count; the dead letter, which is kept, has the total.
test("H4, test_manual_dlq_retry: an operator replays a dead letter as pending, with fresh attempts", () => {
  const dead = after(failing(10), "move_to_dlq");
  const replayed = { ...after(dead, "manual_retry_dlq"), attempts: 0 };
  expect(replayed.state).toBe("pending");
  const failedAgain = after(replayed, "claim_for_processing", "publish_failed");
  expect(() => transition(failedAgain, "move_to_dlq")).toThrow("only 1 of 10");
});

test("H4, test_can_transition_to_utility: pending leads to optimistic and claimed, not to sent", () => {
  expect(canTransition("pending", "optimistic")).toBe(true);
  expect(canTransition("pending", "claimed")).toBe(true);
  expect(canTransition("pending", "sent")).toBe(false);
  expect(canTransition("claimed", "sent")).toBe(true);
  expect(canTransition("claimed", "failed")).toBe(true);
});

// The documents have no move from claimed to pending, so a message is lost with the worker that claimed it. Here an
// expired lease returns it. They have no move from pending to dead_letter; here an operator may bury a message.
test("H4, test_can_transition_to_utility: an expired lease returns its message, and an operator may bury one", () => {
  expect(transition({ ...written, state: "claimed" }, "lease_expired")).toBe("pending");
  expect(transition({ ...written, state: "optimistic" }, "lease_expired")).toBe("pending");
  expect(transition(written, "bury")).toBe("dead_letter");
});

test("H4, test_get_next_states: the next states of every state", () => {
  expect(Object.fromEntries(messageStates.map((state) => [state, nextStates(state)]))).toEqual({
    pending: ["optimistic", "claimed", "dead_letter"],
    optimistic: ["sent", "pending"],
    claimed: ["sent", "failed", "pending", "dead_letter"],
    sent: ["pending"],
    failed: ["pending", "dead_letter"],
    dead_letter: ["pending"],
  });
});

test("H4, test_state_machine_with_initial_status: a message read back as failed continues from there", () => {
  const stored: MessageFacts = { state: "failed", attempts: 3, maxAttempts: 10, due: true };
  expect(transition(stored, "retry")).toBe("pending");
});

// The documents note that their machine must not be shared by threads. This one holds no state: it only answers, and
// the database decides. message-state.pg.test.ts tests which of two workers wins.
test("H4, test_concurrent_transitions: transition() is pure", () => {
  const facts = Object.freeze({ ...written });
  expect([transition(facts, "claim_for_processing"), transition(facts, "attempt_optimistic_send")]).toEqual([
    "claimed",
    "optimistic",
  ]);
  expect(facts).toEqual(written);
});

test("A5: a permanent error dead-letters a message with attempts left", () => {
  expect(transition({ ...written, state: "claimed" }, "reject")).toBe("dead_letter");
});

test("A5: the error of an illegal move names the legal origin and the possible next states", () => {
  expect(() => transition(written, "publish_succeeded")).toThrow(
    "A pending message cannot make the move publish_succeeded: it leads out of claimed only. " +
      "Possible next states: optimistic, claimed, dead_letter.",
  );
});

test("A5: the diagram shows every move with its guard", () => {
  const diagram = stateDiagram();
  for (const { name, from, to } of moves) expect(diagram).toContain(`${from} --> ${to}: ${name}`);
  expect(diagram).toContain("failed --> dead_letter: move_to_dlq [attempts-exhausted]");
});
