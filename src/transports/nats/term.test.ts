import { JetStreamApiError } from "@nats-io/jetstream";
import { errors } from "@nats-io/transport-node";
import { beforeAll, expect, test } from "vitest";
import { natsClient } from "./client.ts";
import type { Session } from "./link.ts";
import { natsSettings } from "./options.ts";
import type { PartitionReader } from "./partition-reader.ts";
import { TermOpener, type Term } from "./term.ts";
import { groupNames } from "./topology.ts";

beforeAll(async () => void (await natsClient.load()));

const settings = natsSettings({});
const opener = new TermOpener({
  settings,
  names: groupNames(settings.prefix, "shop", "billing"),
  window: 4,
  valid: () => true,
  arrived: () => undefined,
  gone: () => undefined,
});

const answer = (err_code: number): Error =>
  new JetStreamApiError({ err_code, code: 503, description: "server error" });

/** A session whose server answers each consumer deletion with the next of these answers. */
function fakeSession(answers: (Error | true)[]): { session: Session; deleted: string[] } {
  const deleted: string[] = [];
  const remove = async (_: string, name: string): Promise<boolean> => {
    deleted.push(name);
    const next = answers.shift() ?? true;
    if (next instanceof Error) throw next;
    return next;
  };
  return { session: { jsm: { consumers: { delete: remove } } } as unknown as Session, deleted };
}

const termWith = (former: readonly string[]): Term => ({
  epoch: 2,
  at: 1,
  reader: {} as PartitionReader,
  draining: false,
  drained: false,
  former,
});

test.each([
  ["no leader", answer(10_008)],
  ["no responder", new errors.NoRespondersError("$JS.API.CONSUMER.DELETE")],
  ["no answer in time", new errors.TimeoutError()],
])("B4: a consumer of a former term that could not be deleted (%s) is deleted later", async (_, failure) => {
  const { session, deleted } = fakeSession([failure]);
  const term = termWith(["former"]);
  await opener.removeFormer(session, term);
  await opener.removeFormer(session, term);
  await opener.removeFormer(session, term);
  expect(deleted).toEqual(["former", "former"]);
});

test.each([
  ["gone already", answer(10_014)],
  ["missing permission", new errors.PermissionViolationError("no", "publish", "s")],
])("B4: a deletion is not repeated after a final answer (%s)", async (_, failure) => {
  const { session, deleted } = fakeSession([failure]);
  const term = termWith(["former"]);
  await opener.removeFormer(session, term);
  await opener.removeFormer(session, term);
  expect(deleted).toEqual(["former"]);
});
