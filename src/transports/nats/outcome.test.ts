import { JetStreamApiError } from "@nats-io/jetstream";
import { errors } from "@nats-io/transport-node";
import { beforeAll, expect, test } from "vitest";
import { natsClient } from "./client.ts";
import { describeFailure } from "./failure.ts";
import { toFailedOutcome } from "./outcome.ts";

beforeAll(async () => void (await natsClient.load()));

const answer = (err_code: number, code: number): Error =>
  new JetStreamApiError({ err_code, code, description: "reason" });

test.each([
  ["a message too large for the stream", answer(10054, 400), "refused"],
  ["another stream than expected", answer(10060, 400), "unreachable"],
  ["a full stream", answer(10077, 503), "unreachable"],
  ["no leader", answer(10008, 503), "unreachable"],
  ["a header that the server rejects", answer(10159, 400), "rejected"],
  ["no responders", new Error("x", { cause: new errors.NoRespondersError("dp.msg.t.0") }), "unreachable"],
  ["a subject that is denied", new errors.PermissionViolationError("no", "publish", "s"), "unreachable"],
  ["more than max_payload", new errors.InvalidArgumentError("payload"), "refused"],
  ["no answer in time", new errors.TimeoutError(), "unknown"],
  ["a connection that ended", new errors.ClosedConnectionError(), "unknown"],
  ["something else", "odd", "unknown"],
])("B4, B10: %s makes the outcome %s", (_, error, kind) => {
  expect(toFailedOutcome(error)).toMatchObject({ kind, error: { name: "SagaboxError" } });
});

test.each([
  ["a publish without a responder", new errors.NoRespondersError("dp.msg.t.0")],
  [
    "a request without a responder",
    Object.assign(new Error("jetstream is not enabled"), { name: "JetStreamNotEnabled" }),
  ],
  ["an answer from a cluster without a leader", answer(10008, 503)],
  ["a stream whose nodes are down", answer(10118, 503)],
])("B10: %s is reported as a missing leader, not as disabled JetStream or a deleted stream", (_, error) => {
  const text = describeFailure(error);
  expect(text).toMatch(/leader/i);
  expect(text).not.toMatch(/JetStream is (off|not enabled)|deleted/i);
  const outcome = toFailedOutcome(error);
  expect(outcome).toMatchObject({ kind: "unreachable" });
  expect(outcome.error.message).toContain(text);
});
