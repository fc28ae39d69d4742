import { command, event, saga } from "sagabox";
import { sagaSpecification } from "sagabox/testing";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import {
  RefundPayment,
  ReleaseStock,
  ReserveStock,
  ShipOrder,
  TakePayment,
} from "../../examples/03-order-saga/contracts.ts";
import { placeOrder } from "../../examples/03-order-saga/order-saga.ts";

// #region given
const { given } = sagaSpecification(placeOrder);
const order = { orderId: "o1", customerId: "ann", sku: "tea", cents: 1250 };
// #endregion given
// #region shared
const reservedOrder = () => given(order).when.done("reserve", { reservationId: "r1" });
const paid = () => reservedOrder().when.done("pay", { paymentId: "p1" });
// #endregion shared

describe("the order saga", () => {
  // #region steps
  test("goes from step to step with the results of those before", () => {
    given(order)
      .expect.sent(ReserveStock, { orderId: "o1", sku: "tea" })
      .sentNothingElse()
      .waitsFor("reserve")
      .when.done("reserve", { reservationId: "r1" })
      .expect.sent(TakePayment, { orderId: "o1", customerId: "ann", cents: 1250 })
      .when.done("pay", { paymentId: "p1" })
      .expect.sent(ShipOrder, { orderId: "o1", customerId: "ann", paymentId: "p1" })
      .when.done("ship", { parcelId: "x1" })
      .expect.completed();
  });
  // #endregion steps

  // #region refusal
  test("gives the stock back when the card is declined", () => {
    reservedOrder()
      .when.refused("pay", "declined")
      .expect.sent(ReleaseStock, { orderId: "o1" })
      .sentNothingElse()
      .when.undone("reserve")
      .expect.compensated();
  });
  // #endregion refusal

  // #region slow
  test("refunds a payment that may have succeeded when the bank is too slow", () => {
    reservedOrder()
      .after("3s")
      .expect.sent(RefundPayment)
      .undoes("pay")
      .when.undone("pay")
      .expect.undoes("reserve")
      .when.undone("reserve")
      .expect.compensated()
      .when.done("pay", { paymentId: "p1" })
      .expect.sent(RefundPayment)
      .status("compensating");
  });
  // #endregion slow

  test("sends the shipment again until it is done, and undoes nothing after the pivot", () => {
    paid().after("45s").expect.sent(ShipOrder).waitsFor("ship").when.cancelled().expect.ignored("pivot");
  });

  // #region person
  test("opens an incident when it is unknown whether the order was shipped", () => {
    paid()
      .after("30m")
      .expect.parked("ship")
      .when.retried()
      .expect.sent(ShipOrder)
      .when.done("ship", { parcelId: "x1" })
      .expect.completed();
  });
  // #endregion person

  // #region duplicate
  test("ignores a repeated reply", () => {
    reservedOrder().when.doneAgain("reserve").expect.ignored("known").sentNothingElse();
  });
  // #endregion duplicate

  test("opens an incident when a refund is refused, and an operator settles it", () => {
    reservedOrder()
      .after("3s")
      .when.undoFailed("pay", { permanent: true })
      .expect.parked("pay")
      .when.settled("pay")
      .expect.undoes("reserve");
  });
});

test("groups, local functions, waits and child sagas use the same methods", () => {
  const Approved = event("approved", { schema: z.object({ id: z.string() }), key: (d) => d.id });
  const input = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };
  const part = saga("part", input)
    .run("work", () => 1)
    .noUndo("small");
  const whole = saga("whole", input)
    .all("both", (g) =>
      g.run("a", () => 1, { undo: () => undefined }).run("b", () => "x", { undo: { none: "small" } }),
    )
    .waitFor("approval", Approved, { timeout: "2d" })
    .child("part", part, (c) => c.input)
    .undoChild()
    .tx("book", () => undefined)
    .undo(() => undefined);
  sagaSpecification(whole)
    .given({ id: "o1" })
    .expect.waitsFor("both.a", "both.b")
    .when.done("both.a", 1)
    .when.done("both.b", "x")
    .expect.waitsFor("approval")
    .after("1d")
    .when.occurs(Approved, { id: "o1" })
    .when.done("part", { work: 1 })
    .when.failed("book", { permanent: true })
    .expect.undoes("book")
    .when.undone("book")
    .when.undone("part")
    .expect.undoes("both.a")
    .when.undone("both.a")
    .expect.compensated();
});

describe("time", () => {
  const schema = z.object({ id: z.string() });
  const Do = command("do", { schema });
  const Undo = command("undo", { schema });
  const Approved = event("approved", { schema, key: (d) => d.id });
  const base = { version: 1, input: schema, key: (i: { id: string }) => i.id };
  const input = { id: "o1" };
  const never = () => new Promise<void>(() => undefined);
  const twice = { retry: { maxAttempts: 2, firstDelay: "1s", factor: 1 } } as const;

  // #region run
  test("refunds a payment when the bank does not end the call in time", () => {
    const checkout = saga("checkout", base)
      .run("pay", never, { timeout: "10s", retry: { maxAttempts: 1 } })
      .undo(() => undefined);
    sagaSpecification(checkout)
      .given({ id: "o1" })
      .after("9s")
      .expect.waitsFor("pay")
      .after("1s")
      .expect.undoes("pay")
      .when.undone("pay")
      .expect.compensated();
  });
  // #endregion run

  test("a command times out and is sent again, after the pivot", () => {
    const shipping = saga("shipping", base)
      .send("ship", Do, (c) => c.input, { timeout: "5s", ...twice })
      .pivot();
    sagaSpecification(shipping)
      .given(input)
      .after(5_999)
      .expect.sentNothingElse()
      .after(1)
      .expect.sent(Do)
      .after("4s")
      .expect.status("running")
      .after("1s")
      .expect.parked("ship");
  });

  test("a run step is tried again after its timeout, and each attempt has its own", () => {
    const calls = saga("calls", base)
      .run("call", never, { timeout: "5s", ...twice })
      .undo(never);
    sagaSpecification(calls)
      .given(input)
      .after(10_999)
      .expect.waitsFor("call")
      .after(1)
      .expect.undoes("call");
  });

  test("a run step without a timeout has 30 s, and one past the pivot is parked", () => {
    const calls = saga("calls", base)
      .tx("sign", () => undefined)
      .pivot()
      .run("call", never, twice);
    const called = sagaSpecification(calls).given(input).when.done("sign").after(60_999);
    called.expect.waitsFor("call").after(1).expect.parked("call");
  });

  test("a tx step that times out was rolled back, so it is not undone", () => {
    const books = saga("books", base)
      .tx("book", never, { timeout: "5s", ...twice })
      .undo(never);
    sagaSpecification(books).given(input).after(10_999).expect.waitsFor("book").after(1).expect.compensated();
  });

  test("the undo of a command, of a run and of a tx step each time out and are tried again", () => {
    const undos = saga("undos", base)
      .send("send", Do, (c) => c.input, { timeout: "5s" })
      .undo(Undo, (c) => c.input, twice)
      .run("run", never, { timeout: "5s" })
      .undo(never, twice)
      .tx("tx", never, { timeout: "5s" })
      .undo(never, twice);
    const done = sagaSpecification(undos).given(input).when.done("send").when.done("run").when.done("tx");
    const [sent, run, tx] = [["send"], ["run", "tx"], ["tx"]] as const;
    const undoing = done.when
      .compensated()
      .after(10_999)
      .expect.undoes("tx")
      .after(1)
      .expect.parked(...tx);
    const next = undoing.when.settled("tx").after(10_999).expect.undoes("run").after(1).expect.parked(run[0]);
    next.when
      .settled("run")
      .after(10_999)
      .expect.undoes("send")
      .after(1)
      .expect.parked(...sent);
  });

  test("steps of a group have timers of their own", () => {
    const both = saga("both", base).all("both", (g) =>
      g
        .run("slow", never, { timeout: "9s", ...twice, undo: { none: "small" } })
        .run("fast", never, { timeout: "3s", retry: { maxAttempts: 1 }, undo: { none: "small" } }),
    );
    const given = sagaSpecification(both).given(input);
    given.after("3s").expect.waitsFor("both.slow").after("16s").expect.compensated();
  });

  test("waits, delays and the deadline pass, and a delay of zero passes at once", () => {
    const waits = saga("waits", { ...base, deadline: "3d" })
      .delay("none", 0)
      .waitFor("approval", Approved, { timeout: "1d", onTimeout: "continue" })
      .delay("pause", "1d")
      .waitFor("late", Approved, { timeout: "9d" });
    sagaSpecification(waits)
      .given(input)
      .after(0)
      .expect.waitsFor("approval")
      .after("1d")
      .expect.status("running")
      .after("1d")
      .expect.waitsFor("late")
      .after("1d")
      .expect.compensated();
  });
});

describe("failed expectations", () => {
  test.each([
    [
      "a command that was not sent",
      () => given(order).expect.sent(ShipOrder),
      '"shipping.ship" was not sent',
    ],
    [
      "other data",
      () => given(order).expect.sent(ReserveStock, { orderId: "o2", sku: "tea" }),
      `"stock.reserve" was sent with other data: { orderId: 'o1', sku: 'tea' }, not { orderId: 'o2', sku: 'tea' }.`,
    ],
    ["one command too many", () => given(order).expect.sentNothingElse(), "stock.reserve was sent too"],
    ["another status", () => given(order).expect.completed(), "it is running. So far: start."],
    ["another step", () => given(order).expect.waitsFor("pay"), "it waits for reserve."],
    [
      "no undo",
      () => reservedOrder().expect.undoes("reserve"),
      "it undoes nothing. So far: start · reserve is done.",
    ],
    ["another incident", () => paid().after("30m").expect.parked("pay"), "the incident is about ship"],
    ["nothing ignored", () => reservedOrder().expect.ignored(), "it was not ignored"],
    [
      "another reason",
      () => reservedOrder().when.doneAgain("reserve").expect.ignored("late"),
      "known to be done",
    ],
    ["a step that has not begun", () => given(order).when.refused("ship"), 'Step "ship" has not begun'],
    ["nothing to undo", () => given(order).when.undone("reserve"), 'Step "reserve" is not being undone'],
  ])("the error describes %s", (_, story, message) => {
    expect(story).toThrow(message);
  });

  test("input, commands and replies are validated by their schemas", () => {
    expect(() => given({ ...order, cents: 1.5 })).toThrow(/does not match its schema: cents: \S/);
    const wrongReply = { reservationId: 7 } as unknown as { reservationId: string };
    expect(() => given(order).when.done("reserve", wrongReply)).toThrow("reservationId");
    const careless = saga("careless", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
      .send("reserve", ReserveStock, (c) => ({ orderId: c.input.id, sku: 7 as unknown as string }))
      .noUndo("never sent");
    expect(() => sagaSpecification(careless).given({ id: "o1" })).toThrow('command "stock.reserve"');
  });

  test("an event for another instance is refused", () => {
    const schema = z.object({ id: z.string(), order: z.string() });
    const Paid = event("paid", { schema, key: (d) => d.id });
    const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };
    const { given: asked } = sagaSpecification(
      saga("asked", options).waitFor("paid", Paid, { timeout: "1d", by: (d) => d.order }),
    );
    asked({ id: "o1" }).when.occurs(Paid, { id: "p1", order: "o1" }).expect.completed();
    expect(() => asked({ id: "o1" }).when.occurs(Paid, { id: "o1", order: "o2" })).toThrow(
      '"paid" has the key "o2" and would not reach this saga, whose key is "o1"',
    );
  });

  test("an unknown step and a result of another type do not compile", () => {
    // @ts-expect-error there is no such step
    expect(() => given(order).when.done("reserved", { reservationId: "r1" })).toThrow(
      'Saga "order" has no step "reserved". Its steps: reserve, pay, ship.',
    );
    // @ts-expect-error there is no such step
    expect(() => given(order).expect.waitsFor("reserved")).toThrow('has no step "reserved"');
    // @ts-expect-error there is no such step
    expect(() => given(order).when.skipped("shiped")).toThrow('has no step "shiped"');
    // @ts-expect-error the reply has another shape
    expect(() => given(order).when.done("reserve", { id: "r1" })).toThrow("does not match");
  });
});
