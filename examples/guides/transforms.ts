import { event, saga, type Bus } from "sagabox";
import { z } from "zod";

// #region transforms
export const RoomBooked = event("guide.room.booked", {
  schema: z.object({
    bookingId: z.string(),
    from: z.coerce.date(),
    total: z.number().transform((euros) => Math.round(euros * 100)),
    guests: z.number().default(1),
  }),
  key: (booking) => booking.bookingId,
});

export function bookRoom(bus: Bus): Promise<unknown> {
  const booking = { bookingId: "b-1", from: new Date("2026-07-01"), total: 99.5 };
  return bus.transaction((tx) => tx.publish(RoomBooked, booking));
}

export function printBookings(bus: Bus, print: (line: string) => void): void {
  bus.on(RoomBooked, { consumer: "front-desk" }, ({ data }) => {
    // data.from is a Date, data.total is 9950, data.guests is 1
    print(`${data.from.getUTCFullYear()}: ${data.total} cents, ${data.guests} guest`);
  });
}
// #endregion transforms

// #region saga
export const remindGuest = saga("remind-guest", {
  version: 1,
  input: z.object({ bookingId: z.string(), from: z.coerce.date() }),
  key: (input) => input.bookingId,
})
  .delay("wait", (c) => Math.max(0, c.input.from.getTime() - Date.UTC(2026, 6, 1)))
  .run("remind", (c) => ({ year: c.input.from.getUTCFullYear() }))
  .noUndo("a reminder cannot be taken back");
// #endregion saga
