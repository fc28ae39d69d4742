import { command } from "sagabox";
import { z } from "zod";

const trip = z.object({ tripId: z.string(), traveller: z.string() });
const reply = z.object({ booking: z.string() });

export const BookFlight = command("flights.book", { schema: trip.extend({ to: z.string() }), reply });
export const CancelFlight = command("flights.cancel", { schema: trip });
export const BookHotel = command("hotels.book", { schema: trip.extend({ nights: z.number().int() }), reply });
export const CancelHotel = command("hotels.cancel", { schema: trip });
