import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { command, event } from "../message/index.ts";
import { saga } from "./define-saga.ts";
import type { GivenInput, InputFor } from "../message/index.ts";

const ReserveStock = command("stock.reserve", {
  schema: z.object({ sku: z.string(), quantity: z.number() }),
  reply: z.object({ reservationId: z.string() }),
});
const ReleaseStock = command("stock.release", {
  schema: z.object({ orderId: z.string(), reservationId: z.string().optional() }),
});
const Ship = command("ship.it", {
  schema: z.object({ paymentId: z.string() }),
  reply: z.object({ trackingId: z.string() }),
});
const Notify = command("mail.send", { schema: z.object({ to: z.string() }) });
const OrderDelivered = event("ship.delivered", {
  schema: z.object({ orderId: z.string(), at: z.string() }),
  key: (d) => d.orderId,
});
const Approved = event("crm.approved", { schema: z.object({ ref: z.string() }) });

const s0 = saga("x", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id });

test("types flow from step to step, into undo, groups, branches and repetitions", () => {
  saga("place-order", {
    version: 1,
    input: z.object({ orderId: z.string(), sku: z.string(), quantity: z.number(), total: z.number() }),
    key: (i) => i.orderId,
    deadline: "1h",
  })
    .send("reserve", ReserveStock, (c) => ({ sku: c.input.sku, quantity: c.input.quantity }), {
      timeout: "30s",
    })
    .undo(ReleaseStock, (c) => ({
      orderId: c.input.orderId,
      ...(c.outcome === "done" ? { reservationId: c.result.reservationId } : {}),
    }))
    .run("charge", (c) => ({ paymentId: c.idempotencyKey }))
    .undo((c) => {
      if (c.outcome === "done") expectTypeOf(c.result.paymentId).toBeString();
      else expectTypeOf(c.result).toBeUndefined();
    })
    .tx("book", async (c) => {
      await c.tx.query("select 1", [c.steps.charge.paymentId]);
      return { row: 1 };
    })
    .pivot()
    .all("fulfil", (g) =>
      g
        .send("ship", Ship, (c) => ({ paymentId: c.steps.charge.paymentId }))
        .send("notify", Notify, (c) => ({ to: c.steps.reserve.reservationId })),
    )
    .when(
      "vip",
      (c) => c.input.total > 100,
      (s) => s.run("gift", () => ({ giftId: "g" })),
    )
    .choose("carrier", (c) => (c.input.total > 10 ? "fast" : "slow"), {
      fast: (s) => s.run("fly", () => ({ flight: 1 })),
      slow: (s) => s.run("drive", () => ({ truck: "t" })),
    })
    .repeat(
      "until-there",
      (s) => s.delay("pause", "1s").run("look", () => ({ there: true })),
      (c) => c.steps.look.there,
      { max: 5 },
    )
    .waitFor("delivered", OrderDelivered, { timeout: "14d" })
    .waitFor("rated", OrderDelivered, { timeout: "14d", onTimeout: "continue" })
    .run("close", (c) => {
      expectTypeOf(c.steps.fulfil.ship.trackingId).toBeString();
      expectTypeOf(c.steps.gift?.giftId).toEqualTypeOf<string | undefined>();
      expectTypeOf(c.steps.fly?.flight).toEqualTypeOf<number | undefined>();
      expectTypeOf(c.steps.look.there).toBeBoolean();
      expectTypeOf(c.steps.delivered.at).toBeString();
      expectTypeOf(c.steps.rated).toEqualTypeOf<{ orderId: string; at: string } | null>();
    });
});

test("mistakes do not compile", () => {
  // @ts-expect-error a step before the pivot must say how it is undone
  void (() => s0.run("a", () => 1).run("b", () => 2));
  const a = s0.run("a", () => 1).noUndo("reads only");
  // @ts-expect-error names are unique
  void (() => a.run("a", () => 2));
  const forward = s0.run("a", () => 1).pivot();
  // @ts-expect-error after the pivot nothing is undone
  void (() => forward.run("b", () => 2).undo(() => undefined));
  // @ts-expect-error the result may be unknown: look at outcome first
  void (() => s0.run("a", () => ({ id: "x" })).undo((c) => void c.result.id));
  // @ts-expect-error later steps' results are not there yet
  void (() => s0.run("a", (c) => c.steps.b));
  // @ts-expect-error an event without a key needs `by`
  void (() => s0.waitFor("ok", Approved, { timeout: "2d" }));
  void (() => s0.waitFor("ok", Approved, { timeout: "2d", by: (d) => d.ref }));
  // @ts-expect-error a wait has an end
  void (() => s0.waitFor("ok", OrderDelivered, {}));
  // @ts-expect-error step results are stored, so they must be JSON
  void (() => s0.run("a", () => new Map()));
  // @ts-expect-error a Date would become a string
  void (() => s0.run("a", () => ({ at: new Date() })));
  // @ts-expect-error wrong command data
  void (() => s0.send("r", ReserveStock, (c) => ({ sku: c.input.id })));
  // @ts-expect-error a member of a group says how it is undone
  void (() => s0.all("g", (g) => g.send("r", ReserveStock, () => ({ sku: "s", quantity: 1 }))));
  // @ts-expect-error an event cannot be taken back: the step names a compensating event, or none with a reason
  void (() => s0.publish("p", OrderDelivered, () => ({ orderId: "o", at: "now" })).run("a", () => 1));
  const published = s0.publish("p", OrderDelivered, () => ({ orderId: "o", at: "now" }));
  // @ts-expect-error the undo of an event is an event
  void (() => published.undo(() => undefined));
  // @ts-expect-error wrong event data
  void (() => published.undo(OrderDelivered, () => ({ orderId: 1 })));
  void (() => published.undo(OrderDelivered, (c) => ({ orderId: c.sagaId, at: "never" })));
  // @ts-expect-error a command is sent, not published
  void (() => s0.publish("p", ReserveStock, () => ({ sku: "s", quantity: 1 })));
  // @ts-expect-error a member of a group says how it is undone
  void (() => s0.all("g", (g) => g.publish("p", OrderDelivered, () => ({ orderId: "o", at: "now" }))));
  const yes = (): boolean => true;
  // @ts-expect-error a pivot does not stand inside a branch
  void (() => s0.when("w", yes, (s) => s.run("a", () => 1).pivot()));
  // @ts-expect-error the input is stored, so it must be JSON
  void (() => saga("x", { version: 1, input: z.object({ at: z.date() }), key: () => "k" }));
});

interface Payment {
  id: string;
  lines: { sku: string; parent?: Payment }[];
}

test("a result may be an interface", () => {
  s0.run("pay", async (c): Promise<Payment> => Promise.resolve({ id: c.input.id, lines: [] }))
    .noUndo("test")
    .all("both", (g) => g.run("one", (): Payment => ({ id: "a", lines: [] }), { undo: { none: "test" } }))
    .run("count", (c) => {
      expectTypeOf(c.steps.pay).toEqualTypeOf<Payment>();
      expectTypeOf(c.steps.both.one).toEqualTypeOf<Payment>();
      return { count: 0 };
    })
    .pivot()
    .run("end", (c) => {
      expectTypeOf(c.steps.count).toEqualTypeOf<{ count: number }>();
    });
});

test("transforms: start takes the input of the schema, steps see its output", () => {
  const input = z.object({ id: z.string(), at: z.coerce.date(), n: z.string().transform(Number) });
  const transformed = saga("x", {
    version: 1,
    input,
    key: (wire) => `${wire.id}${wire.n satisfies string}`,
  }).run("end", (c) => {
    expectTypeOf(c.input.at).toEqualTypeOf<Date>();
    expectTypeOf(c.input.n).toEqualTypeOf<number>();
  });
  expectTypeOf<GivenInput<InputFor<typeof input>>["n"]>().toEqualTypeOf<string>();
  expectTypeOf(transformed.noUndo("test")["~saga"].input.given.n).toEqualTypeOf<string>();
});
