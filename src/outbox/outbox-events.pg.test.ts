import { expect, test } from "vitest";
import { outboxDatabase, outgoing, relays } from "../../test/support/relays.ts";
import { deadLetterStore, discardDeadLetter, replayDeadLetter } from "../dead-letter/index.ts";

const EVENT = `select status, attempts, last_error, published_at is not null as published
                 from sagabox.outbox_events where event_id = 'a'`;
const refused = 'scripted outcome "refused"';

async function buried(holdsOnDeath: boolean) {
  const harness = await relays();
  harness.transport.answer = () => "refused";
  await harness.publish(outgoing({ id: "a", key: "k", holdsOnDeath }));
  await harness.relay().start();
  await harness.observer.until("dead_letter.buried");
  const [letter] = await harness.rows<{ id: string }>("select id::text from sagabox.dead_letter");
  const store = deadLetterStore(harness.database, "sagabox");
  return { harness, store, letter: letter?.id ?? "" };
}

test.each([false, true])(
  "the view shows a discarded dead letter as never sent (its key waited: %s)",
  async (holdsOnDeath) => {
    const { harness, store, letter } = await buried(holdsOnDeath);
    const [dead] = await harness.rows(EVENT);
    expect(dead).toMatchObject({ status: "dead_letter", last_error: refused, published: false });
    await discardDeadLetter(store, letter);
    expect(await harness.rows(EVENT)).toEqual([dead]);
  },
);

test("the view shows a replayed dead letter like any other message", async () => {
  const { harness, store, letter } = await buried(false);
  harness.transport.answer = () => "published";
  await replayDeadLetter(store, letter);
  await harness.drained();
  expect(await harness.rows(EVENT)).toMatchObject([{ status: "sent", attempts: 0, last_error: null }]);
});

test("A4: the view shows the caller's headers and four generated ones; a root is its own cause", async () => {
  const { rows, write } = await outboxDatabase();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const known = { correlationId: "c", traceparent };
  await write(
    { message: { ...known, id: "root" } },
    { message: { ...known, id: "caused", causationId: "root", headers: { "x-channel": "phone" } } },
    { message: { ...known, id: "later" }, delayMs: 60_000 },
  );
  const events = await rows("select event_id, headers, causation_id from sagabox.outbox_events order by 1");
  const four = { trace_id: "0af7651916cd43dd8448eb211c80319c", correlation_id: "c" };
  const root = (id: string) => ({ ...four, message_id: id, causation_id: id });
  expect(events).toEqual([
    {
      event_id: "caused",
      headers: { ...four, message_id: "caused", causation_id: "root", "x-channel": "phone" },
      causation_id: "root",
    },
    { event_id: "later", headers: root("later"), causation_id: null },
    { event_id: "root", headers: root("root"), causation_id: null },
  ]);
});
