from scrapy.item import Field, Item


class Quote(Item):
    text = Field()
    author = Field(serializer=str.upper)


class Writer(Item):
    name = Field()
    born = Field(serializer=int)
