import { createBus, event, permanent, saga, type Bus } from "sagabox";
import { z } from "zod";

const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

/** What tests of the command line run; those whose id begins with "broken" fail past their pivot, with an escape in the error. */
export function orderSaga() {
  return saga("order", options)
    .run("reserve", () => "r1")
    .undo(() => undefined)
    .tx("book", () => 1)
    .noUndo("a note")
    .when(
      "asks",
      (c) => !c.input.id.startsWith("broken"),
      (s) => s.waitFor("approval", Approved, { timeout: "1d" }),
    )
    .tx("pay", () => 1)
    .pivot()
    .run("ship", (c): string => {
      throw permanent(`no carrier for ${c.input.id}\u001b[2J`);
    });
}

function changedSaga() {
  return saga("order", options)
    .run("look", () => 1)
    .noUndo("it only reads")
    .run("reserve", () => "r1")
    .undo(() => undefined);
}

/** The application as the command line loads it, with its definition changed when the environment says so. */
export default function application(): Bus {
  const bus = createBus({ service: "shop", database: process.env["DATABASE_URL"] ?? "", log: false });
  bus.register(process.env["CHANGED"] === "yes" ? changedSaga() : orderSaga());
  return bus;
}
