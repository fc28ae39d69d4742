import { expect, test } from "vitest";
import { command, event, saga } from "sagabox";
import { z } from "zod";
import { runSaga, replyInput, workInput } from "../../test/support/manual-saga.ts";
import { instanceDiagram, instanceTimeline, sagaDiagram } from "./diagram.ts";

const Reserve = command("stock.reserve", {
  schema: z.object({ id: z.string() }),
  reply: z.object({ r: z.string() }),
});
const Release = command("stock.release", { schema: z.object({ id: z.string() }) });
const Paid = event("payments.paid", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 2, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

const label = saga("label", options)
  .run("print", () => 1)
  .noUndo("paper is cheap");
const order = saga("place-order", options)
  .send("reserve", Reserve, (c) => ({ id: c.input.id }))
  .undo(Release, (c) => ({ id: c.input.id }))
  .all("book", (g) =>
    g
      .run("hotel", () => 1, { undo: () => undefined })
      .send("flight", Reserve, (c) => ({ id: c.input.id }), { undo: { none: "it expires" } }),
  )
  .when(
    "express",
    () => true,
    (s) => s.run("upgrade", () => 1).undo(() => undefined),
  )
  .repeat(
    "poll",
    (s) =>
      s
        .run("ask", () => 1)
        .noUndo("it only reads")
        .delay("pause", "1m"),
    () => true,
    { max: 5 },
  )
  .tx("book-keeping", () => 1)
  .pivot()
  .waitFor("paid", Paid, { timeout: "3d", onTimeout: "continue" })
  .child("label", label, (c) => c.input).definition;

test("F11: a definition is drawn with its kinds of steps, undo dashed, the pivot, groups, branches and repetitions", () => {
  expect(sagaDiagram(order)).toMatchInlineSnapshot(`
    "flowchart TD
      n1(["start<br/>place-order 2"])
      s2["reserve<br/>sends stock.reserve, within 30.0 s"]
      u3["sends stock.release"]
      subgraph g4["book: all"]
        s5("hotel<br/>runs here, within 30.0 s")
        u6["runs here"]
        s7["flight<br/>sends stock.reserve, within 30.0 s<br/>no undo: it expires"]
      end
      b8{"express"}
      s9("upgrade<br/>runs here, within 30.0 s")
      u10["runs here"]
      subgraph r11["poll: again until it is over, at most 5 times"]
        s12("ask<br/>runs here, within 30.0 s<br/>no undo: it only reads")
        s13{{"pause<br/>waits for its time"}}
      end
      s14[("book-keeping<br/>runs in the transaction<br/>pivot: no way back from here")]
      s15{{"paid<br/>waits for payments.paid, within 3.0 d, then goes on"}}
      s16[["label<br/>saga label 2"]]
      n17(["completed"])
      s2 -.->|"undo"| u3
      s5 -.->|"undo"| u6
      s9 -.->|"undo"| u10
      b8 -->|"taken"| s9
      s12 --> s13
      s13 -->|"again"| s12
      n1 --> s2
      s2 --> g4
      g4 --> b8
      s9 --> r11
      b8 -->|"otherwise"| r11
      r11 --> s14
      s14 --> s15
      s15 --> s16
      s16 --> n17
      classDef undo fill:#fff4d6,stroke:#8a6100,color:#3d2b00,stroke-dasharray:4 3
      class u3,u6,u10 undo
      classDef pivot stroke-width:4px
      class s14 pivot"
  `);
});

const trip = saga("trip", options)
  .send("reserve", Reserve, (c) => ({ id: c.input.id }))
  .undo(Release, (c) => ({ id: c.input.id }))
  .run("charge", () => 1, { retry: { maxAttempts: 2 } })
  .undo(() => undefined)
  .run("ship", () => 1)
  .noUndo("it is last").definition;

const compensated = runSaga(trip, { id: "o1" }, [
  [40, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
  [100, workInput("charge", { kind: "failed", error: "time out", certain: true })],
  [900, workInput("charge", { kind: "refused", error: 'no "money"; click' })],
  [62_000, replyInput("reserve", { kind: "done" }, true)],
]);

test("F11: an instance is drawn with what happened, when, for how long, and what was undone", () => {
  expect(instanceDiagram(trip, compensated)).toMatchInlineSnapshot(`
    "flowchart TD
      n1(["o1<br/>trip 2"])
      s2["reserve<br/>sends stock.reserve, within 30.0 s<br/>compensated +0 ms, took 40 ms"]
      u3["sends stock.release<br/>done +900 ms, took 1.0 min"]
      s4("charge<br/>runs here, within 30.0 s<br/>failed +40 ms, took 860 ms, attempt 2: no _money__ click")
      u5["runs here"]
      s6("ship<br/>runs here, within 30.0 s<br/>no undo: it is last")
      n7(["compensated"])
      s2 -.->|"undo"| u3
      s4 -.->|"undo"| u5
      n1 --> s2
      s2 --> s4
      s4 --> s6
      s6 --> n7
      classDef undone fill:#fff4d6,stroke:#8a6100,color:#3d2b00
      class s2,u3 undone
      classDef failed fill:#fde2e1,stroke:#b3261e,color:#410e0b
      class s4 failed
      classDef idle fill:#f4f4f4,stroke:#bbbbbb,color:#777777
      class u5,s6 idle"
  `);
});

test("F11: the time of an instance is drawn without its definition", () => {
  expect(instanceTimeline(compensated)).toMatchInlineSnapshot(`
    "gantt
      title trip o1, compensated
      dateFormat x
      axisFormat %H:%M:%S
      section Steps
      reserve 40 ms :done, 1767225600000, 1767225600040
      charge 860 ms, attempt 2 :crit, 1767225600040, 1767225600900
      section Undo
      undo reserve 1.0 min :done, 1767225600900, 1767225662000"
  `);
});

test("a running step is drawn as such, up to the latest time that is known", () => {
  const open = runSaga(trip, { id: "o1" }, [
    [40, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
  ]);
  expect(instanceTimeline(open)).toContain("charge running :active, ");
  expect(instanceDiagram(trip, open)).toMatch(/s4\("charge<br\/>.*in_progress \+40 ms"\)/);
});

test("a repeated step is drawn with the round it is in, a choice with the way it took", () => {
  const polled = runSaga(order, { id: "o1" }, [
    [10, replyInput("reserve", { kind: "done", result: { r: "r1" } })],
    [20, workInput("book.hotel", { kind: "done" })],
    [30, replyInput("book.flight", { kind: "done", result: { r: "r1" } })],
    [40, workInput("upgrade", { kind: "done" })],
  ]);
  const drawn = instanceDiagram(order, polled);
  expect(drawn).toContain('{"express<br/>took taken"}');
  expect(drawn).toContain("round 1, in_progress +40 ms");
  expect(instanceTimeline(polled)).toContain("ask round 1 running");
});

test("texts that others chose cannot break out of a diagram", () => {
  const evil = { ...compensated, key: 'x"]; click n1 "javascript:alert(1)"\n%%{init}%%' };
  const lines = (text: string): number => text.split("\n").length;
  expect(lines(instanceDiagram(trip, evil))).toBe(lines(instanceDiagram(trip, compensated)));
  expect(lines(instanceTimeline(evil))).toBe(lines(instanceTimeline(compensated)));
  expect(instanceDiagram(trip, evil) + instanceTimeline(evil)).not.toMatch(/[;]|%%|click n1 "/);
});
