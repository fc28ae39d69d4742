// #region saga
import { saga } from "sagabox";
import { z } from "zod";
import { BookFlight, BookHotel, CancelFlight, CancelHotel } from "./contracts.ts";
import { rentals, taxis } from "./partners.ts";

export const bookTrip = saga("trip", {
  version: 1,
  input: z.object({
    tripId: z.string(),
    traveller: z.string(),
    to: z.string(),
    nights: z.number().int(),
    insured: z.boolean(),
  }),
  key: (trip) => trip.tripId,
  deadline: "10m", // the traveller has an answer by then
})
  .all("book", (g) =>
    g
      .send("flight", BookFlight, ({ input: { tripId, traveller, to } }) => ({ tripId, traveller, to }), {
        undo: [CancelFlight, ({ input: { tripId, traveller } }) => ({ tripId, traveller })],
      })
      .send(
        "hotel",
        BookHotel,
        ({ input: { tripId, traveller, nights } }) => ({ tripId, traveller, nights }),
        { undo: [CancelHotel, ({ input: { tripId, traveller } }) => ({ tripId, traveller })] },
      )
      .run("car", (c) => rentals.reserve(c.idempotencyKey, c.input.traveller), {
        undo: (c) => rentals.cancel(c.idempotencyKey),
      }),
  )
  .any("transfer", (g) =>
    g
      .run("city-cabs", (c) => taxis.order("City Cabs", c.idempotencyKey, c.signal), {
        undo: (c) => taxis.cancel(c.idempotencyKey),
      })
      .run("airport-shuttle", (c) => taxis.order("Airport Shuttle", c.idempotencyKey, c.signal), {
        undo: (c) => taxis.cancel(c.idempotencyKey),
      }),
  )
  .tx("confirm", async ({ input, steps, tx }) => {
    const parts = [steps.book.flight.booking, steps.book.hotel.booking, steps.book.car.booking];
    await tx.query("insert into trip (id, parts) values ($1, $2)", [input.tripId, parts.join(", ")]);
  })
  .pivot() // the traveller has it in writing: from here on nothing is taken back
  .when(
    "insurance",
    ({ input }) => input.insured,
    (s) => s.run("insure", ({ idempotencyKey }) => ({ policy: idempotencyKey })),
  );
// #endregion saga
