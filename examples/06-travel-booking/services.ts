import { refuse, type Bus } from "sagabox";
import { BookFlight, BookHotel, CancelFlight, CancelHotel } from "./contracts.ts";

export function flightService(bus: Bus): void {
  bus.on(BookFlight, { consumer: "flights" }, async ({ data }, { tx }) => {
    await tx.query("insert into seat (trip_id) values ($1)", [data.tripId]);
    return { booking: `a flight to ${data.to}` };
  });
  bus.on(CancelFlight, { consumer: "flights" }, async ({ data }, { tx }) => {
    await tx.query("delete from seat where trip_id = $1", [data.tripId]);
  });
}

export function hotelService(bus: Bus): void {
  bus.on(BookHotel, { consumer: "hotels" }, async ({ data }, { tx }) => {
    if (data.nights > 14) throw refuse("no room for so long");
    await tx.query("insert into room (trip_id) values ($1)", [data.tripId]);
    return { booking: `a room for ${data.nights} nights` };
  });
  bus.on(CancelHotel, { consumer: "hotels" }, async ({ data }, { tx }) => {
    await tx.query("delete from room where trip_id = $1", [data.tripId]);
  });
}
