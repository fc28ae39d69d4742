export { drizzleTransactions } from "../storage/drivers/drizzle.ts";
