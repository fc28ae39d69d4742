import { expect, test } from "vitest";
import {
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

// The scenarios of the design documents, under their names. Where the outcome differs on purpose, the test says why.

const written: MessageFacts = { state: "pending", attempts: 0, maxAttempts: 10, due: true };

/** Where a message gets by these moves. A failed publish is charged, as the settle statement does it. */
function after(facts: MessageFacts, ...names: MoveName[]): MessageFacts {
  return names.reduce((now, name) => {
    const state = transition(now, name);
    return { ...now, state, attempts: now.attempts + (name === "publish_failed" ? 1 : 0) };
  }, facts);
}

/** Claimed and failed so many times; the last failure is not followed by a retry. */
function failing(times: number): MessageFacts {
  const first = after(written, "claim_for_processing", "publish_failed");
  const rest = Array.from(
    { length: times - 1 },
    () => ["retry", "claim_for_processing", "publish_failed"] as const,
  );
  return after(first, ...rest.flat());
}

test("H4, test_initial_state: a message starts pending, and that is not its end", () => {
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

test("H4, test_publish_failure_with_retry: a failure is charged, and the message is pending again when it is due", () => {
  const failed = failing(1);
  expect(failed).toMatchObject({ state: "failed", attempts: 1 });
  expect(after(failed, "retry").state).toBe("pending");
});

test("H4, test_publish_failure_with_retry: nothing is tried again before its time", () => {
  const early = (): MessageFacts => after({ ...failing(1), due: false }, "retry");
  expect(early).toThrow("its next attempt is not due yet");
});

test("H4, test_max_attempts_move_to_dlq: after the last attempt the message may be given up", () => {
  const exhausted = failing(10);
  expect(exhausted).toMatchObject({ state: "failed", attempts: 10 });
  expect(after(exhausted, "move_to_dlq").state).toBe("dead_letter");
});

test("H4, test_guard_prevents_premature_dlq: with attempts left a message is not given up", () => {
  const failed = failing(1);
  expect(() => transition(failed, "move_to_dlq")).toThrow("only 1 of 10 attempts are used up");
  expect(failed.state).toBe("failed");
});

test("H4, test_invalid_transition_prevented: no way leads from pending to sent, nor from optimistic to claimed", () => {
  expect(canTransition("pending", "sent")).toBe(false);
  const held = after(written, "attempt_optimistic_send");
  expect(() => transition(held, "claim_for_processing")).toThrow(
    expect.objectContaining({ code: "OUTBOX_ILLEGAL_MOVE" }) as Error,
  );
});

test("H4, test_sent_is_final_state: nothing leads out of sent", () => {
  expect(isFinal("sent")).toBe(true);
  expect(nextStates("sent")).toEqual([]);
  for (const { name } of moves) expect(() => transition({ ...written, state: "sent" }, name)).toThrow("sent");
});

// The documents keep the attempts of a replayed message. Then its very next failure would bury it again, whatever was
// repaired in between. So a replay starts counting anew; the dead letter, which stays, keeps the total.
test("H4, test_manual_dlq_retry: a person brings a dead letter back as pending, with all its attempts", () => {
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

// The documents know no way from claimed to pending, so there a message is lost with the worker that claimed it. Here a
// lease that ends returns it. They know no way from pending to the dead letters; here a person may bury a message.
test("H4, test_can_transition_to_utility: a lease that ends returns its message, and a person may bury one", () => {
  expect(transition({ ...written, state: "claimed" }, "lease_expired")).toBe("pending");
  expect(transition({ ...written, state: "optimistic" }, "lease_expired")).toBe("pending");
  expect(transition(written, "bury")).toBe("dead_letter");
});

test("H4, test_get_next_states: what may come next, from every state", () => {
  expect(Object.fromEntries(messageStates.map((state) => [state, nextStates(state)]))).toEqual({
    pending: ["optimistic", "claimed", "dead_letter"],
    optimistic: ["sent", "pending"],
    claimed: ["sent", "failed", "pending", "dead_letter"],
    sent: [],
    failed: ["pending", "dead_letter"],
    dead_letter: ["pending"],
  });
});

test("H4, test_state_machine_with_initial_status: a message read back as failed goes on from there", () => {
  const stored: MessageFacts = { state: "failed", attempts: 3, maxAttempts: 10, due: true };
  expect(transition(stored, "retry")).toBe("pending");
});

// The documents note that their machine must not be shared by threads. Ours holds no state at all: it answers, and the
// database decides. Who really won is shown in message-state.pg.test.ts.
test("H4, test_concurrent_transitions: the same question asked by two gets the same answer and changes nothing", () => {
  const facts = Object.freeze({ ...written });
  expect([transition(facts, "claim_for_processing"), transition(facts, "attempt_optimistic_send")]).toEqual([
    "claimed",
    "optimistic",
  ]);
  expect(facts).toEqual(written);
});

test("A5: a permanent error ends a message at once, whatever attempts remain", () => {
  expect(transition({ ...written, state: "claimed" }, "reject")).toBe("dead_letter");
});

test("A5: an illegal move says from where it would be legal and what is possible instead", () => {
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
