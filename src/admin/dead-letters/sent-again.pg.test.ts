import { expect, test, vi } from "vitest";
import { outboxDatabase } from "../../../test/support/relays.ts";
import { discardDeadLetter, replayDeadLetter } from "../../dead-letter/index.ts";
import { countRepublish, republish } from "../../outbox/index.ts";
import { buryLiveMessage, editDeadLetter } from "./dead-letter-actions.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";

vi.setConfig({ testTimeout: 60_000 });

const by = { actor: "ann", reason: "fixed" };

/** A dead letter of a message that was never sent. */
async function buried() {
  const { rows, write, database } = await outboxDatabase();
  const admin = createDeadLetterAdmin(database, "sagabox");
  await write({ message: { id: "m-1", key: "k", data: '{"n":1}' } });
  const { deadLetterId: letter } = await buryLiveMessage(admin, "m-1", by);
  const window = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 60_000), ...by };
  const again = async () => {
    const planned = await countRepublish(database, "sagabox", window);
    const { count } = await republish(database, "sagabox", window);
    expect(count).toBe(planned);
    return count;
  };
  const waiting = () =>
    rows(`select data, outbox.stream is not null as in_line from sagabox.outbox
            join sagabox.message on id = message_id and message.written_on = outbox.written_on`);
  return { rows, admin, letter, again, waiting, sent: () => rows("delete from sagabox.outbox") };
}

test("A15: republish skips a message that was discarded before it was sent", async () => {
  const { admin, letter, again, waiting } = await buried();
  await discardDeadLetter(admin.store, letter, by);
  expect(await again()).toBe(0);
  expect(await waiting()).toEqual([]);
});

test("A15: a replayed message counts as sent only after it was sent", async () => {
  const { admin, letter, again, waiting, sent } = await buried();
  await replayDeadLetter(admin.store, letter, by);
  expect(await again()).toBe(0);
  await sent();
  expect(await again()).toBe(1);
  expect(await waiting()).toEqual([{ data: '{"n":1}', in_line: true }]);
});

test("A15: a message that was sent with edited data is republished with the edited data", async () => {
  const { admin, letter, again, waiting, sent } = await buried();
  await editDeadLetter(admin, letter, { data: '{"n":2}', ...by });
  expect(await again()).toBe(0);
  await sent();
  expect(await again()).toBe(1);
  expect(await waiting()).toEqual([{ data: '{"n":2}', in_line: true }]);
});

test("a message whose day was dropped keeps its stream when it is replayed and republished", async () => {
  const { rows, admin, letter, again, waiting, sent } = await buried();
  await rows("delete from sagabox.message");
  await rows("update sagabox.dead_letter set written_at = now()");
  await replayDeadLetter(admin.store, letter, by);
  await sent();
  expect(await again()).toBe(1);
  expect(await waiting()).toEqual([{ data: '{"n":1}', in_line: true }]);
});
