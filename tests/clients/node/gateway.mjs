// Where the running gateway is; whoever starts these tests has put it into the environment.
export const gateway = JSON.parse(process.env.BREAKEVEN_CLIENTS_GATEWAY);
export const TEXT = "Paris is the capital of France.";
