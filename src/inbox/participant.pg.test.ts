import { expect, test } from "vitest";
import { ignore, permanent, refuse } from "../errors/index.ts";
import { undoesHeader } from "../message/index.ts";
import { aCommand, participants, Release, Reserve } from "../../test/support/consumers.ts";
import type { HandlerContext } from "./handler.ts";

const write = (what: string, id: string, { tx, consumer }: HandlerContext) =>
  tx.query("insert into effect (consumer, id, note) values ($1, $2, $3)", [consumer, id, what]);

/** Handlers that reserve and release stock. A reservation can be refused. */
async function setup({ reserves = true } = {}) {
  const harness = await participants();
  if (reserves) {
    harness.registry.on(Reserve, { consumer: "stock" }, async ({ id, data }, context) => {
      await write("do", id, context);
      if (data.refuse !== undefined) throw refuse(data.refuse);
      return { place: `shelf of ${id}` };
    });
  }
  harness.registry.on(Release, { consumer: "stock" }, async ({ id }, context) => {
    await write("undo", id, context);
  });
  await harness.start();
  const seen = async (id: string) =>
    (await harness.rows("select effect, undone_by from sagabox.consumer_inbox where event_id = $1", [id]))[0];
  return { ...harness, seen };
}

const refusing = { data: '{"refuse":"card declined"}' };

test("S-23: a refusal rolls back, is answered with its reason, and is remembered as handled without effect", async () => {
  const { settled, replyTo, did, seen, deadLetters } = await setup();
  await settled(aCommand(Reserve, "d1", refusing));
  await settled(aCommand(Reserve, "d1", refusing));
  expect(replyTo("d1")).toMatchObject([{ outcome: "failed", reason: "refused", error: "card declined" }]);
  expect(await did()).toEqual([]);
  expect(await seen("d1")).toMatchObject({ effect: false });
  expect(await deadLetters()).toEqual([]);
});

test("an ignored command gets a reply that says so if it requested one", async () => {
  const harness = await participants();
  harness.registry.on(Release, { consumer: "stock" }, () => {
    throw ignore("not ours");
  });
  await harness.start();
  await harness.settled(aCommand(Release, "asked"), aCommand(Release, "told", { headers: {} }));
  expect(harness.replies).toMatchObject([
    { requestId: "asked", outcome: "failed", reason: "ignored", error: "not ours" },
  ]);
  expect(await harness.rows("select event_id, effect from sagabox.consumer_inbox order by 1")).toEqual([
    { event_id: "asked", effect: false },
    { event_id: "told", effect: false },
  ]);
});

test("replies to a command of a saga carry its id, and it is their key; others have none", async () => {
  const { settled, replyTo } = await setup();
  await settled(
    aCommand(Reserve, "d1", { sagaId: "saga-7" }),
    aCommand(Reserve, "d2", { sagaId: "saga-7", ...refusing }),
    aCommand(Reserve, "d3"),
  );
  const told = ["d1", "d2", "d3"].map((id) => replyTo(id).map(({ key, sagaId }) => [key, sagaId]));
  expect(told).toEqual([[["saga-7", "saga-7"]], [["saga-7", "saga-7"]], [[undefined, undefined]]]);
});

test("I-13: an undo before its command runs no handler, is answered as done, and makes the late command a duplicate", async () => {
  const { settled, replyTo, skips, did, observer } = await setup();
  await settled(aCommand(Release, "u1", { undoes: ["d1", "d2"] }));
  expect(skips()).toEqual(["u1 nothing_to_undo"]);
  expect(replyTo("u1")).toMatchObject([{ outcome: "done" }]);
  expect(replyTo("u1")[0]).not.toHaveProperty("reply");
  await settled(
    aCommand(Reserve, "d1"),
    aCommand(Reserve, "d2"),
    aCommand(Release, "u1", { undoes: ["d1"] }),
  );
  expect(observer.of("consumer.duplicate")).toHaveLength(3);
  expect(await did()).toEqual([]);
});

test("a command that was dead-lettered and undone has no effect when it is replayed", async () => {
  const harness = await participants();
  let broken = true;
  harness.registry.on(Reserve, { consumer: "stock" }, async ({ id }, context) => {
    if (broken) throw permanent("the shelf is on fire");
    await write("do", id, context);
    return { place: "A1" };
  });
  harness.registry.on(Release, { consumer: "stock" }, () => undefined);
  await harness.start();
  await harness.settled(aCommand(Reserve, "d1"));
  await harness.settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  broken = false;
  await harness.settled(aCommand(Reserve, "d1"));
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "d1" }]);
  expect(harness.observer.of("consumer.duplicate")).toMatchObject([{ id: "d1" }]);
  expect(await harness.did()).toEqual([]);
});

test("I-13: a command is undone once, for any number of undos", async () => {
  const { settled, replyTo, skips, did, seen } = await setup();
  await settled(aCommand(Reserve, "d1"));
  await settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  await settled(aCommand(Release, "u2", { undoes: ["d0", "d1"] }));
  expect(await did()).toEqual(["do d1", "undo u1"]);
  expect(skips()).toEqual(["u2 already_undone"]);
  expect(replyTo("u2")).toMatchObject([{ outcome: "done" }]);
  expect(await seen("d1")).toEqual({ effect: true, undone_by: "u1" });
});

test("after a failed undo the next one undoes the command", async () => {
  const harness = await participants();
  harness.registry.on(Reserve, { consumer: "stock" }, () => ({ place: "A1" }));
  harness.registry.on(Release, { consumer: "stock" }, async ({ id }, context) => {
    await write("undo", id, context);
    if (id === "u1") throw permanent("the shelf is locked");
  });
  await harness.start();
  await harness.settled(aCommand(Reserve, "d1"));
  await harness.settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  await harness.settled(aCommand(Release, "u2", { undoes: ["d1"] }));
  expect(await harness.did()).toEqual(["undo u2"]);
  expect(harness.replyTo("u1")).toMatchObject([{ outcome: "failed", reason: "rejected" }]);
});

test("a refused command needs no undo", async () => {
  const { settled, skips, did } = await setup();
  await settled(aCommand(Reserve, "d1", refusing));
  await settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  expect(skips()).toEqual(["u1 nothing_to_undo"]);
  expect(await did()).toEqual([]);
});

test("a consumer without a handler for the command runs the handler of the undo", async () => {
  const harness = await setup({ reserves: false });
  await harness.settled(aCommand(Release, "u1", { undoes: ["d1"] }));
  expect(await harness.did()).toEqual(["undo u1"]);
  expect(await harness.rows("select event_id from sagabox.consumer_inbox")).toEqual([{ event_id: "u1" }]);
});

test("a repeated command that was executed gets the first reply, and has no second effect", async () => {
  const { settled, replyTo, skips, did } = await setup();
  await settled(aCommand(Reserve, "d1"));
  await settled(aCommand(Reserve, "d2", { supersedes: ["d1"] }));
  await settled(aCommand(Reserve, "d3", { supersedes: ["d2"] }));
  expect(skips()).toEqual(["d2 superseded", "d3 superseded"]);
  for (const id of ["d2", "d3"])
    expect(replyTo(id)).toMatchObject([{ outcome: "done", reply: { place: "shelf of d1" } }]);
  await settled(aCommand(Release, "u1", { undoes: ["d3"] }));
  await settled(aCommand(Release, "u2", { undoes: ["d1", "d2", "d3"] }));
  expect(await did()).toEqual(["do d1", "undo u1"]);
});

test("a repeated command that comes first is executed, and makes the first one a duplicate", async () => {
  const { settled, replyTo, did, observer } = await setup();
  await settled(aCommand(Reserve, "d2", { supersedes: ["d1"] }));
  await settled(aCommand(Reserve, "d1"));
  expect(replyTo("d2")).toMatchObject([{ outcome: "done", reply: { place: "shelf of d2" } }]);
  expect(observer.of("consumer.duplicate")).toMatchObject([{ id: "d1" }]);
  await settled(aCommand(Release, "u1", { undoes: ["d1", "d2"] }));
  expect(await did()).toEqual(["do d2", "undo u1"]);
});

test("the first copy of a refused command is not executed later", async () => {
  const { settled, replyTo, did } = await setup();
  await settled(aCommand(Reserve, "d2", { supersedes: ["d1"], ...refusing }));
  await settled(aCommand(Reserve, "d1"));
  expect(replyTo("d2")).toMatchObject([{ outcome: "failed", reason: "refused" }]);
  expect(await did()).toEqual([]);
});

test.each(["stock.reserve", "stock.reserve a b", "stock.reserve u1"])(
  "a reference that reads %j sends the command to the dead letters",
  async (value) => {
    const { settled, deadLetters, did } = await setup();
    await settled(aCommand(Release, "u1", { headers: { [undoesHeader]: value } }));
    expect(await deadLetters()).toMatchObject([
      { messageId: "u1", reason: "rejected", errorType: "HEADER_INVALID", attempts: 1 },
    ]);
    expect(await did()).toEqual([]);
  },
);

test("events cannot undo commands", async () => {
  const { settled, did, skips } = await setup();
  await settled(aCommand(Release, "u1", { undoes: ["d1"], kind: "event" }));
  expect([await did(), skips()]).toEqual([["undo u1"], []]);
});

test("I-13: the undo of a command whose dedupe row may be deleted runs its handler", async () => {
  const { settled, did, skips } = await setup();
  const old = "018bcfe5-6800-7000-8000-000000000001"; // made in 2023
  await settled(aCommand(Release, "u1", { undoes: [old] }));
  await settled(aCommand(Release, "u1", { undoes: [old] }));
  expect(await did()).toEqual(["undo u1"]);
  expect(skips()).toEqual([]);
});
