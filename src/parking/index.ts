// Keeps the order per key through retries on brokers that cannot. A keyed message that fails moves from the
// broker to PostgreSQL, and later messages of its key wait there behind it. Other keys keep flowing.
export { ParkingTransport } from "./parking-transport.ts";
