// Personal fields: sealed with one key for each person, opened for those who may, and erased by destroying the key.
export {};
