import { event, permanent, saga } from "sagabox";
import { z } from "zod";

export const Approved = event("approvals.given", {
  schema: z.object({ id: z.string(), by: z.string() }),
  key: (d) => d.id,
});

export const sagaOptions = {
  version: 1,
  input: z.object({ id: z.string() }),
  key: (i: { id: string }): string => i.id,
};

/** Undone by a function that fails until it is repaired. */
export function approvedOrder(world: { broken: boolean }) {
  return saga("order", sagaOptions)
    .run("reserve", () => "r1")
    .undo(
      () => {
        if (world.broken) throw permanent("stock is down");
      },
      { retry: { maxAttempts: 1 } },
    )
    .waitFor("approval", Approved, { timeout: "1d" })
    .run("ship", () => "s1")
    .noUndo("it is last");
}
