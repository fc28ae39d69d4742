export { prismaTransactions } from "../storage/drivers/prisma.ts";
